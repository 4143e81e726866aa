"""Call operators as `torch.ops.molgcn.*` with arguments that do not fit, or that lie in memory in another way.

It is a program, since a wrong call may end its process: `python direct_calls.py [--emulated] [--extension PATH] [--random COUNT]`. It
prints each call before it makes it, and WRONG where the outcome is neither the right value nor an error.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from molgcn.errors import UserError

# raised by the operators, or by PyTorch for what a schema excludes
REFUSALS = (UserError, ValueError, TypeError, IndexError, RuntimeError, NotImplementedError)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool)


def misfits(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the tensor in other shapes and dtypes, sparse, and without memory."""
    for dim in range(tensor.dim()):
        first = tensor.narrow(dim, 0, 1) if tensor.shape[dim] else tensor.new_zeros([size or 1 for size in tensor.shape])
        cut = [tensor.narrow(dim, 0, size) for size in {max(tensor.shape[dim] - 1, 0), 0} - {tensor.shape[dim]}]
        yield from (*cut, torch.cat([tensor, first], dim))
    yield tensor[None]
    yield from [tensor.new_empty(0)] if tensor.shape != (0,) else []
    yield from (tensor.to(dtype) for dtype in DTYPES if dtype != tensor.dtype)
    yield tensor.to("meta")
    yield tensor.to_sparse()


def relaid(tensor: Tensor) -> dict[str, Tensor]:
    """Return the tensor in memory with other strides, and at an address that vectors cannot be read from."""
    size, dims = tensor.numel(), list(range(tensor.dim()))[::-1]
    room = torch.full((2, 2 * size + 1), torch.nan if tensor.is_floating_point() else 77, device=tensor.device).to(tensor.dtype)
    return {
        "strided": room[0, : 2 * size].view(*tensor.shape, 2).select(-1, 0).copy_(tensor),
        "transposed": tensor.permute(dims).contiguous().permute(dims),
        "unaligned": room[1, 1 if room[1].data_ptr() % 16 == 0 else 0 :][:size].view(tensor.shape).copy_(tensor),
    }


class Calls:
    """Makes calls, and prints those with a wrong outcome.

    Args:
        emulated: whether the implementations for CUDA run, under emulation.
    """

    def __init__(self, emulated: bool) -> None:
        self.emulated, self.made, self.refused = emulated, 0, 0

    def knows(self, name: str, argument: str) -> bool:
        """Return whether the host checks an argument's size. For networks on CUDA it does not wait to read the indices of a batch."""
        return not (self.emulated and "network" in name and argument in ("ptr", "rowptr", "col", "code", "tile_ptr", "bonds"))

    def memory(self) -> AbstractContextManager[None]:
        """Return a context in which emulated calls have the memory of a GPU. What they wrote is checked, and freed, at its end."""
        from emulated import gpu_memory

        return gpu_memory() if self.emulated else nullcontext()

    def outcome(self, name: str, call: Callable[[], list[Tensor]]) -> list[Tensor] | None:
        """Return the outputs of a call, or None if it is refused."""
        print(name, flush=True)
        self.made += 1
        try:
            return call()
        except REFUSALS:
            self.refused += 1
            return None

    def may_refuse(self, name: str, call: Callable[[], list[Tensor]], right: Callable[[], list[Tensor]]) -> None:
        """Make a call that is to be refused, to give no values, or to give those of `right`, which plain PyTorch may have computed."""
        found = self.outcome(name, call)
        if found is None or all(tensor.is_meta for tensor in found):
            return
        try:
            expected, tolerance = right(), 1e-4 if found[0].dtype.itemsize > 2 else 1e-2
            torch.testing.assert_close(found[: len(expected)], expected, rtol=tolerance, atol=tolerance)
        except (AssertionError, *REFUSALS):
            print("WRONG", name)

    def same(self, name: str, call: Callable[[], list[Tensor]], right: list[Tensor] | None) -> None:
        """Make a call that is to give the values of `right`, or to be refused if that is None."""
        found = self.outcome(name, call)
        try:
            torch.testing.assert_close(found, right, equal_nan=True)
        except AssertionError:
            print("WRONG", name)


def call_operators(calls: Calls, random: int) -> None:
    """Call every operator with each of its tensors changed, and `random` times with other integers."""
    from operator_calls import forward_calls, run

    rng, called = np.random.default_rng(0), set[str]()
    for name, call in forward_calls(calls.emulated).items():
        with calls.memory():
            for one, given in change_both(calls, name, *call):
                called.add(one.default.name())
                for _ in range(random):
                    calls.outcome(f"{name}: other numbers", partial(run, one, with_other_numbers(given, rng)))
    left_out = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("molgcn::")} - called
    if left_out != (set() if calls.emulated else {"molgcn::encode", "molgcn::encode_backward"}):  # on a CPU these are modules of PyTorch
        print("WRONG: never called:", *sorted(left_out))


def change_both(calls: Calls, name: str, operator: Any, arguments: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Call an operator and its backward operator with each of their tensors changed, and return both with their arguments."""
    from operator_calls import backward_call

    change(calls, name, operator, arguments, partial(by_reference, operator, arguments))
    backward = backward_call(operator, arguments, operator(*arguments))
    if backward is None:
        return [(operator, arguments)]
    change(calls, f"{name}, backward", *backward, partial(after_forward, (operator, arguments), backward))
    return [(operator, arguments), backward]


def by_reference(operator: Any, arguments: list[Any], *other: Any) -> list[Tensor]:
    """Return an operator's first output by plain PyTorch, with another argument, given as :func:`operator_calls.replaced` takes it."""
    from operator_calls import reference, replaced

    return [reference(operator, replaced(arguments, *other))]


def after_forward(forward: tuple[Any, list[Any]], backward: tuple[Any, list[Any]], place: int, *other: Any) -> list[Tensor]:
    """Return what a backward operator returns with another argument, after a forward call that had it too."""
    from operator_calls import backward_call, replaced, run

    operator, arguments = forward
    names = [[argument.name for argument in one.default._schema.arguments] for one in (operator, backward[0])]
    first = names[1].index(names[0][0])  # the place of forward's first argument
    if place < first:
        return run(*backward)
    inputs = replaced(arguments, place - first, *other)
    return run(*backward_call(operator, inputs, operator(*inputs)))


def change(calls: Calls, name: str, operator: Any, arguments: list[Any], expected: Callable[..., list[Tensor]]) -> None:
    """Call an operator with each of its tensors changed.

    Args:
        calls: makes the calls.
        name: the name of the call.
        operator: the operator.
        arguments: the operator's arguments.
        expected: returns the outputs for another argument, given as :func:`operator_calls.replaced` takes it.
    """
    from operator_calls import replaced, run, tensors_of

    def with_(*other: Any) -> Callable[[], list[Tensor]]:
        return lambda: run(operator, replaced(arguments, *other))

    right = run(operator, arguments)
    for place, value in enumerate(arguments):
        argument = operator.default._schema.arguments[place].name
        of, sized = f"{name}: {argument}", calls.knows(name, argument)
        for number, tensor in tensors_of(value):
            for misfit in misfits(tensor):
                if not sized and misfit.dtype == tensor.dtype and not misfit.is_meta:
                    continue
                what = f"{of} {list(tensor.shape)} as {list(misfit.shape)} {misfit.dtype} {misfit.layout} {misfit.device}"
                calls.may_refuse(what, with_(place, misfit, number), partial(expected, place, misfit, number))
            for what, one in relaid(tensor).items():
                calls.same(f"{of} {what}", with_(place, one, number), right)
            if tensor.dim() and tensor.shape[0] > 1 and sized and argument != "saved":  # which has indices too
                one = tensor[:1].expand(tensor.shape)
                calls.same(f"{of} expanded", with_(place, one, number), calls.outcome(f"{of} repeated", with_(place, one.clone(), number)))
        if isinstance(value, list) and tensors_of(value):
            for values in (value[:-1], [*value, value[-1]], []):
                calls.may_refuse(f"{of}: {len(values)} tensors", with_(place, values), partial(expected, place, values))


def hook_operators(calls: Calls) -> None:
    """Take gradients while hooks return other tensors for those that were saved for backward."""
    from operator_calls import forward_calls, gradients

    for name, call in forward_calls(calls.emulated).items():
        with calls.memory():
            hook(calls, name, partial(gradients, *call))


def hook(calls: Calls, name: str, call: Callable[[], list[Tensor]]) -> None:
    """Take the gradients of one call, while hooks return others of its saved tensors."""
    right, saved = call(), list[Tensor]()
    with saved_tensors_hooks(saved.append, lambda _: torch.empty(0)), suppress(*REFUSALS):
        call()
    for how in relaid(torch.zeros(1)):
        calls.same(f"{name}: saved tensors {how}", partial(hooked, call, dict.fromkeys(range(len(saved)), how)), right)
    for place, tensor in enumerate(saved):
        for misfit in misfits(tensor.detach()):
            what = f"{name}: saved tensor {place} {list(tensor.shape)} as {list(misfit.shape)} {misfit.dtype} {misfit.layout}"
            calls.may_refuse(what, partial(hooked, call, {place: misfit}), partial(list, right))


def hooked(call: Callable[[], list[Tensor]], instead: dict[int, Tensor | str]) -> list[Tensor]:
    """Make a call during which hooks return the tensors `instead` of those that were saved, or, for a name, what `relaid` calls so."""
    saved = list[Tensor]()

    def pack(tensor: Tensor) -> int:
        saved.append(tensor.detach())
        return len(saved) - 1

    def unpack(place: int) -> Tensor:
        other = instead.get(place, saved[place])
        return relaid(saved[place])[other] if isinstance(other, str) else other

    with saved_tensors_hooks(pack, unpack):
        return call()


def with_other_numbers(arguments: list[Any], rng: np.random.Generator) -> list[Any]:
    """Return the arguments with some elements of one integer tensor replaced by random integers."""
    integers = (torch.int32, torch.int64)
    places = [i for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.dtype in integers and value.numel()]
    if not places:
        return arguments
    place = int(rng.choice(places))
    changed = arguments[place].clone()
    for _ in range(int(rng.integers(1, 4))):
        changed.view(-1)[int(rng.integers(changed.numel()))] = int(rng.choice([-(2**31), -1, 0, 1, 3, 17, 1000, 2**31 - 1]))
    return [*arguments[:place], changed, *arguments[place + 1 :]]


def use_extension(path: Path) -> None:
    """Use another build of the extension."""
    spec = importlib.util.spec_from_file_location("molgcn._cpu", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import molgcn

    sys.modules["molgcn._cpu"] = molgcn._cpu = module  # type: ignore[attr-defined]


@contextmanager
def emulation() -> Iterator[None]:
    """Run the implementations for CUDA on CPU tensors."""
    from emulated import Emulator

    from molgcn import ops
    from molgcn.cuda_runtime.launch import launching_by

    library = torch.library.Library("molgcn", "IMPL")
    modules = {"gine_aggregate": ops.gine_cuda, "head_loss": ops.head_loss_cuda}
    modules |= {name: getattr(ops, f"{name}_cuda") for name in ("aggregate", "attention", "encode", "gcn_conv")}
    modules["layer_network"] = ops.implementation_cuda
    passes = {name: (module.forward, module.backward) for name, module in modules.items()}
    for name, (forward, backward) in passes.items():
        library.impl(name, forward, "CPU", allow_override=True)
        library.impl(f"{name}_backward", backward, "CPU", allow_override=True)
    with launching_by(Emulator()):
        yield
    library._destroy()


def main() -> None:
    """Make all calls. With an extension that a sanitizer watches, the process ends at the first wrong access to memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--extension", type=Path)
    parser.add_argument("--random", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    if options.extension is not None:
        use_extension(options.extension)
    calls = Calls(options.emulated)
    with emulation() if options.emulated else nullcontext():
        call_operators(calls, options.random)
        hook_operators(calls)
    print(f"{calls.made} calls, {calls.refused} refused")


if __name__ == "__main__":
    main()
