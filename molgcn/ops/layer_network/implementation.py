"""What an implementation of `molgcn::layer_network` takes and returns, and the registration of each device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from molgcn.ops.encode import Encoded
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.passes import saved_numbers


class Outputs(NamedTuple):
    """The outputs of the operator.

    Attributes:
        pooled: The pooled features [B, H], with H columns for each value that is pooled, or what the head of a call makes of them.
        new_statistics: The running means and variances of the K batch norms after this batch, [2, K, H], in training; otherwise
            [2, 0, H].
        saved: What backward needs, in x's dtype.
        of_loss: With an objective `pooled` is the scalar loss, 0 if no target is known. Then this has the sum and the number of its terms,
            float64 [2], and what else backward needs of it. Empty without an objective.
    """

    pooled: Tensor
    new_statistics: Tensor
    saved: Tensor
    of_loss: Sequence[Tensor] = ()


Gradients = tuple[Tensor, Tensor, list[Tensor]]  # of x and of the bonds' rows, [0, 0] where not wanted, and of the parameters
AllGradients = tuple[Tensor, Tensor, Sequence[Tensor | None]]
"""The gradients of x and of the bonds' rows, [0, 0] where not wanted, and of what :attr:`.call.LayerNetworkCall.learnt` returns."""
States = Sequence[Encoded | None]
"""What each encoder of a call has computed."""


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


class Implementation(NamedTuple):
    """The passes of a call as functions.

    Attributes:
        forward: Returns the outputs of a call, and what its encoders have computed.
        backward: Returns the gradients, given a call on encoded rows without its objective, what forward has kept, the gradient of the
            result, and whether the gradients of x and of the bonds' rows, or of their encoders, are wanted.
    """

    forward: Callable[[LayerNetworkCall], tuple[Outputs, States]]
    backward: Callable[[LayerNetworkCall, Kept, Tensor, bool, bool], AllGradients]


class Direct(NamedTuple):
    """What eager calls on plain tensors take on a type of device, past PyTorch's dispatcher.

    Attributes:
        implementation_of: Returns the implementation of a call, or None if it is the operator's.
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
