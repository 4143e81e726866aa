"""Derivatives of operators: first derivatives by backward operators, higher ones by reference implementations in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_Outputs = tuple[Tensor, ...]


class Derivative(NamedTuple):
    """How an operator's first output is differentiated. Its other outputs are only kept for backward.

    Attributes:
        operator: The operator's name, "molgcn::...".
        inputs: The named tuple class of its arguments.
        num_tensors: The number of leading arguments that are tensors or None.
        differentiable: The names of the arguments that have gradients.
        backward: Returns the gradients of these arguments, given the output's gradient, the kept outputs, whether each gradient is
            wanted, and the kept inputs.
        reference: Returns the reference implementation, a function from the inputs to the first output. It is called when needed.
        kept: Returns the outputs and inputs that are kept for backward. By default all outputs are kept if there are several, otherwise
            none; and all inputs are.
    """

    operator: str
    inputs: Any
    num_tensors: int
    differentiable: tuple[str, ...]
    backward: Callable[[Tensor, _Outputs, list[bool], Any], Sequence[Tensor | None]]
    reference: Callable[[], Callable[[Any], Tensor]]
    kept: Callable[[_Outputs, Any], tuple[_Outputs, Any]] = lambda outputs, inputs: (outputs if len(outputs) > 1 else (), inputs)

    def register(self) -> None:
        """Register the derivative of the operator, and register its backward as not differentiable."""
        namespace, name = self.operator.split("::")
        call = getattr(getattr(torch.ops, namespace), name).default
        places = [self.inputs._fields.index(field) for field in self.differentiable]

        def differentiate(*args: Any) -> Any:
            if torch.is_grad_enabled() and any(args[place] is not None and args[place].requires_grad for place in places):
                outputs = _Function.apply(self, call, *args)
                return outputs if len(outputs) > 1 else outputs[0]
            with torch._C._AutoDispatchBelowAutograd():
                return call(*args)

        def refuse(ctx: Any, *grads: Any) -> tuple:
            raise RuntimeError(f"{name}_backward has no derivative of its own; differentiate {name} with create_graph=True")

        torch.library.impl(self.operator, "Autograd", differentiate)
        torch.library.register_autograd(f"{self.operator}_backward", refuse)

    def by_reference(self, inputs: Any, wanted: Sequence[bool], grad_out: Tensor) -> list[Tensor | None]:
        """Return the gradients by plain PyTorch, which can be differentiated again.

        They are taken with respect to views of the inputs. The inputs may have been computed from each other, and that dependence is not
        part of this operator's derivative.
        """
        names = [name for name, want in zip(self.differentiable, wanted, strict=True) if want]
        views = {name: getattr(inputs, name).view_as(getattr(inputs, name)) for name in names}
        for view in views.values():
            if not view.requires_grad:  # `kept` has put a tensor in its place that has only the shape
                view.requires_grad_()
        out = self.reference()(inputs._replace(**views))
        found = iter(torch.autograd.grad(out, list(views.values()), grad_out, create_graph=True, allow_unused=True))
        return [next(found) if want else None for want in wanted]


class _Function(torch.autograd.Function):
    """The autograd function of an operator. `torch.library.register_autograd` does the same, but takes twice as long on the host."""

    @staticmethod
    def forward(ctx: Any, derivative: Derivative, call: Callable[..., Any], *args: Any) -> _Outputs:
        with torch._C._AutoDispatchBelowAutograd():
            found = call(*args)
        outputs: _Outputs = found if isinstance(found, tuple) else (found,)
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        kept, inputs = derivative.kept(outputs, derivative.inputs(*args))
        ctx.save_for_backward(*kept, *inputs[: derivative.num_tensors])
        ctx.derivative, ctx.num_kept, ctx.options = derivative, len(kept), inputs[derivative.num_tensors :]
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        derivative, (grad_out, *_) = ctx.derivative, grads
        given: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if grad_out is None:
            return tuple(given)
        saved = ctx.saved_tensors
        outputs, inputs = saved[: ctx.num_kept], derivative.inputs(*saved[ctx.num_kept :], *ctx.options)
        places = [2 + inputs._fields.index(name) for name in derivative.differentiable]
        wanted = [ctx.needs_input_grad[place] for place in places]
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True: second derivatives are wanted
            found = derivative.by_reference(inputs, wanted, grad_out)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                found = derivative.backward(grad_out, outputs, wanted, inputs)
        for place, want, gradient in zip(places, wanted, found, strict=True):
            given[place] = gradient if want else None
        return tuple(given)
