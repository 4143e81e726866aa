"""Differentiable operators: first derivatives by backward operators, higher ones by reference implementations in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.expect import PLAIN, expect_shapes, shapes_of

_Outputs = tuple[Tensor, ...]
_Gradients = Sequence[Tensor | None]
_LEADING = 3  # the number of arguments of _Function before the tensors


class _Calls(NamedTuple):
    """An operator and its backward as functions, with the arguments of their schemas."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]


class Operator:
    """An operator whose first output is differentiable. Its other outputs are only kept for backward.

    It is registered with PyTorch, for `torch.compile`, export and transforms. Eager calls on plain tensors go straight to the device's
    implementation: PyTorch's dispatcher takes longer to call a Python function than a small graph's kernels take.

    Args:
        name: The operator's name, "molgcn::...". Its schema is defined already, and so is that of its backward, "..._backward".
        inputs: The named tuple class of its arguments.
        num_tensors: The number of leading arguments that are tensors or None.
        differentiable: The names of the arguments that have gradients.
        backward: Returns the gradients of these arguments, given the backward operator, the output's gradient, the kept outputs, whether
            each gradient is wanted, and the kept inputs.
        reference: Returns the reference implementation, a function from the inputs to the first output. It is called when needed.
        kept: Returns the outputs that are kept for backward, and the inputs with the tensors that are. By default all inputs are kept, and
            all outputs if there are several.
    """

    def __init__(
        self,
        name: str,
        inputs: Any,
        num_tensors: int,
        differentiable: tuple[str, ...],
        backward: Callable[[Callable[..., Any], Tensor, _Outputs, list[bool], Any], _Gradients],
        reference: Callable[[], Callable[[Any], Tensor]],
        kept: Callable[[_Outputs, Any], tuple[_Outputs, Any]] | None = None,
    ) -> None:
        self.name, self.inputs, self.num_tensors = name, inputs, num_tensors
        self.backward, self.kept = backward, kept
        self.indices = [inputs._fields.index(field) for field in differentiable]
        self._reference, self._direct = reference, dict[str, _Calls]()
        namespace, short = name.split("::")
        operators = getattr(torch.ops, namespace)
        self._operator = getattr(operators, short).default
        below = _Calls(below_autograd(self._operator), below_autograd(getattr(operators, f"{short}_backward").default))

        def refuse(ctx: Any, *grads: Any) -> tuple:
            raise RuntimeError(f"{short}_backward has no derivative of its own; differentiate {short} with create_graph=True")

        torch.library.impl(name, "Autograd", lambda *args: self._differentiable(below, args))
        torch.library.register_autograd(f"{name}_backward", refuse)

    def implement(self, device: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Declare a device's implementations of the operator and its backward.

        Args:
            device: The dispatch key, "CPU" or "CUDA".
            forward: Takes the operator's arguments.
            backward: Takes the arguments of the operator's backward.
        """
        torch.library.impl(self.name, device, forward)
        torch.library.impl(f"{self.name}_backward", device, backward)
        self._direct[device.lower()] = _Calls(forward, backward)

    def __call__(self, inputs: Any) -> Tensor:
        """Return the first output."""
        outputs: Any = self.outputs(inputs)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    def outputs(self, inputs: Any) -> Any:
        """Return the output, or the tuple of outputs if there are several."""
        calls = self._direct.get(inputs[0].device.type) if is_eager(inputs[: self.num_tensors]) else None
        return self._operator(*inputs) if calls is None else self._differentiable(calls, inputs)

    def _differentiable(self, calls: _Calls, args: Sequence[Any]) -> Any:
        if torch.is_grad_enabled():
            for index in self.indices:
                if args[index] is not None and args[index].requires_grad:
                    outputs = _Function.apply(self, calls, args[self.num_tensors :], *args[: self.num_tensors])
                    return outputs if len(outputs) > 1 else outputs[0]
        return calls.forward(*args)

    def by_reference(self, inputs: Any, wanted: Sequence[bool], grad_out: Tensor) -> list[Tensor | None]:
        """Return the gradients by plain PyTorch, which can be differentiated again.

        They are taken with respect to views of the inputs. The inputs may have been computed from each other, and that dependence is not
        part of this operator's derivative.
        """
        indices = [index for index, want in zip(self.indices, wanted, strict=True) if want]
        views = {inputs._fields[index]: inputs[index].view_as(inputs[index]) for index in indices}
        for view in views.values():
            if not view.requires_grad:  # `kept` may have replaced the tensor by one that has only its shape
                view.requires_grad_()
        out = self._reference()(inputs._replace(**views))
        found = iter(torch.autograd.grad(out, list(views.values()), grad_out, create_graph=True, allow_unused=True))
        return [next(found) if want else None for want in wanted]


class _Function(torch.autograd.Function):
    """The autograd function of an operator. `torch.library.register_autograd` does the same, but takes twice as long on the host."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, calls: _Calls, options: Sequence[Any], *tensors: Tensor | None) -> _Outputs:
        found = calls.forward(*tensors, *options)
        outputs: _Outputs = found if isinstance(found, tuple) else (found,)
        if len(outputs) > 1:
            ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        kept = outputs if len(outputs) > 1 else ()
        if operator.kept is not None:
            kept, inputs = operator.kept(outputs, operator.inputs(*tensors, *options))
            tensors = inputs[: operator.num_tensors]
        saved = (*kept, *tensors)
        ctx.save_for_backward(*saved)
        ctx.shapes = shapes_of(saved)
        ctx.operator, ctx.calls, ctx.num_kept, ctx.options = operator, calls, len(kept), options
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        operator, grad_out, needed = ctx.operator, grads[0], ctx.needs_input_grad
        given: list[Tensor | None] = [None] * len(needed)
        if grad_out is None:
            return tuple(given)
        saved = ctx.saved_tensors
        expect_shapes(operator.name, saved, ctx.shapes)
        outputs, inputs = saved[: ctx.num_kept], operator.inputs(*saved[ctx.num_kept :], *ctx.options)
        wanted = [needed[_LEADING + index] for index in operator.indices]
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True: second derivatives are wanted
            found = operator.by_reference(inputs, wanted, grad_out)
        else:
            found = operator.backward(ctx.calls.backward, grad_out, outputs, wanted, inputs)
        for index, want, gradient in zip(operator.indices, wanted, found, strict=True):
            given[_LEADING + index] = gradient if want else None
        return tuple(given)


def is_eager(tensors: tuple[Tensor | None, ...]) -> bool:
    """Return whether only autograd has to see a call: no compiler, tracer, transform, mode or subclass of tensors has."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
        and PLAIN.issuperset(map(type, tensors))
    )


def below_autograd(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a registered operator below autograd."""

    def below(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return call(*args)

    return below
