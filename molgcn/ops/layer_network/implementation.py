"""What an implementation of `molgcn::layer_network` takes and returns, and the registration of each device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from molgcn.ops.encode import NUM_TENSORS, PARAMETERS, Encoded, EncodeInputs
from molgcn.ops.expect import expect_shapes, shapes_of
from molgcn.ops.graph import NUM_TENSORS as TENSORS_OF_GRAPH
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.passes import saved_numbers
from molgcn.ops.layer_network.program import Program


class Outputs(NamedTuple):
    """The outputs of the operator.

    Attributes:
        pooled: The pooled features [B, H], with H columns for each value that is pooled, or what the head of a call makes of them.
        new_statistics: The running means and variances of the K batch norms after this batch, [2, K, H], in training; otherwise, and if
            the implementation has written them already, [2, 0, H].
        saved: What backward needs, in x's dtype.
        of_loss: With an objective `pooled` is the scalar loss, 0 if no target is known. Then this has the sum and the number of its terms,
            float64 [2], and what else backward needs of it. Empty without an objective.
    """

    pooled: Tensor
    new_statistics: Tensor
    saved: Tensor
    of_loss: Sequence[Tensor] = ()


Gradients = tuple[Tensor, Tensor, list[Tensor]]  # of x and of the bonds' rows, [0, 0] where not wanted, and of the parameters
AllGradients = tuple[Tensor | None, Tensor | None, Sequence[Tensor | None]]
"""The gradients of x and of the bonds' rows, which may be anything where they are not wanted, and of what
:attr:`.call.LayerNetworkCall.learnt` returns."""
States = Sequence[Encoded | None]
"""What each encoder of a call has computed."""
OfEncoders = Sequence[Tensor | None]


class Kept(NamedTuple):
    """What forward keeps for backward.

    Attributes:
        saved: The tensor of :class:`Outputs`.
        moments: What the norm of each encoder has normalised by; None for rows without an encoder.
        of_loss: The tensors of :class:`Outputs`.
    """

    saved: Tensor
    moments: Sequence[Tensor | None] = ()
    of_loss: Sequence[Tensor] = ()


class Forward(NamedTuple):
    """A forward pass, and what its backward pass needs.

    Attributes:
        outputs: The outputs.
        of_encoders: The new running statistics of each encoder's norm, [2, k], or None without an encoder and if they are written.
        kept: The tensors that backward takes, or None for those that there are not.
        backward: Returns the gradients, given the tensors that were kept, the gradient of the result, and of each variable whether its
            gradient is wanted: x, the bonds' rows and what :attr:`.call.LayerNetworkCall.learnt` returns. It holds no tensor.
    """

    outputs: Outputs
    of_encoders: OfEncoders
    kept: Sequence[Tensor | None]
    backward: Callable[[Sequence[Any], Tensor, Sequence[bool]], AllGradients]


class Implementation(Protocol):
    """The computation of a call."""

    def run(self, call: LayerNetworkCall) -> Forward:
        """Run the forward pass."""
        ...


def nothing_saved(*_: Any) -> AllGradients:
    """Refuse a backward pass for which nothing was saved."""
    raise RuntimeError("layer_network ran with save_for_backward=False; run it with True to take gradients")


class Passes(NamedTuple):
    """An implementation whose passes each take a call.

    Attributes:
        forward: Returns the outputs of a call, and what its encoders have computed.
        backward: Returns the gradients, given a call on encoded rows without its objective, what forward has kept, the gradient of the
            result, and whether the gradients of x and of the bonds' rows, or of their encoders, are wanted.
    """

    forward: Callable[[LayerNetworkCall], tuple[Outputs, States]]
    backward: Callable[[LayerNetworkCall, Kept, Tensor, bool, bool], AllGradients]

    def run(self, call: LayerNetworkCall) -> Forward:
        """Run the forward pass."""
        outputs, states = self.forward(call)
        of_encoders = statistics_of(states)
        if not call.options.save_for_backward:
            return Forward(outputs, of_encoders, (), nothing_saved)
        call = call.encoded(states).for_backward
        inputs = [of_rows for of_rows, made in zip(call.encoders, states, strict=True) if of_rows is not None and made is not None]
        moments = [made.moments for made in states if made is not None]
        rows = (*call.graph.tensors, *chain.from_iterable((made, *of_rows.tensors) for made, of_rows in zip(moments, inputs, strict=True)))
        kept = (outputs.saved, *outputs.of_loss, call.seed, *rows, *call.statistics, *call.head, *call.parameters)
        encoders = [None if of_rows is None else of_rows.options for of_rows in call.encoders]
        numbers = (len(outputs.of_loss), len(call.statistics), len(call.head))
        backward = _Backward(self.backward, call.program, call.options, call.graph.hints, encoders, numbers, shapes_of(rows)).gradients
        return Forward(outputs, of_encoders, kept, backward)


def statistics_of(states: States) -> OfEncoders:
    """Return the new running statistics that encoders have computed."""
    return [None if made is None else made.statistics for made in states]


class _Backward(NamedTuple):
    """The backward pass of :class:`Passes` for the tensors that it has kept.

    Attributes:
        backward: The function that takes the call.
        program: The network.
        options: The options of the call.
        hints: The hints of its graph.
        encoders: The options of each encoder, or None.
        numbers: The numbers of tensors of the loss, of running statistics and of the head.
        shapes: The shapes of the tensors of the graph and of the encoders.
    """

    backward: Callable[[LayerNetworkCall, Kept, Tensor, bool, bool], AllGradients]
    program: Program
    options: Options
    hints: tuple[int, bool, bool]
    encoders: Sequence[tuple[Any, ...] | None]
    numbers: tuple[int, int, int]
    shapes: list[torch.Size | None]

    def gradients(self, kept: Sequence[Any], grad_result: Tensor, needed: Sequence[bool]) -> AllGradients:
        """Return the gradients, see :class:`Forward`."""
        num_of_loss, num_statistics, num_head = self.numbers
        saved, *rest = kept
        of_loss, seed, rest = rest[:num_of_loss], rest[num_of_loss], rest[num_of_loss + 1 :]
        expect_shapes("layer_network", rest[: len(self.shapes)], self.shapes)
        tensors, wants = iter(rest), iter(needed)
        graph = Graph(*islice(tensors, TENSORS_OF_GRAPH), *self.hints)  # type: ignore[call-arg]
        of_rows, wanted, moments, encoders = [next(wants), next(wants)], list[bool](), list[Tensor | None](), list[EncodeInputs | None]()
        for options, of_these_rows in zip(self.encoders, of_rows, strict=True):
            moments.append(None if options is None else next(tensors))
            encoders.append(None if options is None else EncodeInputs.of([*islice(tensors, NUM_TENSORS)], options))
            wanted.append(of_these_rows if options is None else any([*islice(wants, len(PARAMETERS))]))
        statistics, head = [*islice(tensors, num_statistics)], [*islice(tensors, num_head)]
        call = LayerNetworkCall(graph, self.program, [*tensors], statistics, seed, self.options, (encoders[0], encoders[1]), head)
        return self.backward(call, Kept(saved, moments, of_loss), grad_result, *wanted)


class Direct(NamedTuple):
    """What eager calls take on a type of device, past PyTorch's dispatcher.

    Attributes:
        implementation_of: Returns the implementation of a call, or None if it is the operator's: always for subclasses of tensors.
        takes_end: Whether implementations may compute a head, and its loss, in launches of their own.
    """

    implementation_of: Callable[[LayerNetworkCall], Implementation | None]
    takes_end: bool = False


DIRECT: dict[str, Direct] = {}
"""What each type of device, such as "cuda", has for eager calls."""


_SAVED_NUMBERS: dict[str, Callable[[LayerNetworkCall], int]] = {}


def register_saved_numbers(device_type: str, numbers: Callable[[LayerNetworkCall], int]) -> None:
    """Register the function that gives the size of `saved` on a type of device.

    Args:
        device_type: The type of device, such as "cpu".
        numbers: Returns how many numbers `saved` has for a call. It depends on shapes and options only.
    """
    _SAVED_NUMBERS[device_type] = numbers


def numbers_saved(call: LayerNetworkCall) -> int:
    """Return how many numbers the implementation of a call's device keeps for backward."""
    return _SAVED_NUMBERS.get(call.graph.x.device.type, saved_numbers)(call)
