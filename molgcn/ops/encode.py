r"""`molgcn::encode`: rows of features and of random walks, mapped to the first states of atoms or bonds.

CUDA has an implementation, :mod:`molgcn.ops.encode_cuda`. On other devices networks call PyTorch's modules instead; see
:mod:`molgcn.nn.fused_encoders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.expect import expect
from molgcn.ops.fake import register_fake
from molgcn.ops.operator import Operator

MAX_IN = 256  # columns of features and walks together
MAX_NORMED = 128  # columns of walks with a norm
MAX_OUT = 512  # columns of states
NUM_TENSORS = 11  # the number of leading arguments that are tensors or None


class EncodeInputs(NamedTuple):
    """The arguments of :func:`encode`, in the order of its schema: R rows, all tensors but `num_real` in float32.

    Attributes:
        x: The features [R, F], which get no gradient.
        weight: The features' weight [C, F].
        bias: Its bias [C], or None.
        walks: The probabilities of random walks [R, k], which get no gradient, or None.
        walk_weight: The walks' weight [D, k]. With `add` D is C.
        walk_bias: Its bias [D], or None.
        norm_weight: The weight [k] of a batch norm of the walks, or None without a norm.
        norm_bias: The bias [k] of the norm.
        running_mean: The running mean [k] of the norm.
        running_var: The running variance [k] of the norm.
        num_real: The number of real rows, an int32 scalar on the device of `x`, or None if all are real. The padding's rows come last.
        add: Whether both encodings are added. Otherwise they stand side by side.
        training: Whether the norm uses the statistics of the real rows, and not the running ones.
        eps: What the norm adds to the variance.
        momentum: The weight of this batch in the running statistics.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    walks: Tensor | None = None
    walk_weight: Tensor | None = None
    walk_bias: Tensor | None = None
    norm_weight: Tensor | None = None
    norm_bias: Tensor | None = None
    running_mean: Tensor | None = None
    running_var: Tensor | None = None
    num_real: Tensor | None = None
    add: bool = False
    training: bool = False
    eps: float = 1e-5
    momentum: float = 0.1

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The arguments that are tensors or None."""
        tensors: tuple[Any, ...] = self[:NUM_TENSORS]
        return tensors

    @property
    def options(self) -> tuple[Any, ...]:
        """The other arguments."""
        return self[NUM_TENSORS:]

    @staticmethod
    def of(tensors: Iterable[Any], options: Iterable[Any]) -> EncodeInputs:
        """Return the arguments with these :attr:`tensors` and :attr:`options`."""
        return EncodeInputs(*tensors, *options)

    @property
    def parameters(self) -> list[Tensor | None]:
        """The arguments that have gradients."""
        return [*_parameters(self)]

    @property
    def for_backward(self) -> EncodeInputs:
        """What backward reads. In training the running statistics change before it."""
        return self._replace(running_mean=None, running_var=None) if self.training else self

    @property
    def num_steps(self) -> int:
        """The number of columns of the walks, k; 0 without walks."""
        return 0 if self.walks is None else self.walks.shape[1]

    @property
    def num_normed(self) -> int:
        """The number of columns that the norm has; 0 without a norm."""
        return 0 if self.norm_weight is None else self.num_steps

    @property
    def out_channels(self) -> int:
        """The number of columns of the states."""
        return self.widths[0] if self.add else sum(self.widths)

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of columns of both encodings, C and D; D is 0 without walks."""
        return self.weight.shape[0], 0 if self.walk_weight is None else self.walk_weight.shape[0]


class Encoded(NamedTuple):
    """The outputs of the operator.

    Attributes:
        states: The states [R, C + D], or [R, C] if encodings are added. The padding's rows are 0.
        statistics: The running mean and variance after this batch [2, k] where a norm is in training, otherwise [2, 0].
        moments: What a norm has normalised by, the mean, a factor and what is added [3, k], otherwise [3, 0].
    """

    states: Tensor
    statistics: Tensor
    moments: Tensor


_ARGUMENTS = (
    "Tensor x, Tensor weight, Tensor? bias, Tensor? walks, Tensor? walk_weight, Tensor? walk_bias, Tensor? norm_weight, "
    "Tensor? norm_bias, Tensor? running_mean, Tensor? running_var, Tensor? num_real, bool add, bool training, float eps, float momentum"
)
PARAMETERS = ("weight", "bias", "walk_weight", "walk_bias", "norm_weight", "norm_bias")
_parameters = attrgetter(*PARAMETERS)
torch.library.define(
    "molgcn::encode", f"({_ARGUMENTS}) -> (Tensor states, Tensor statistics, Tensor moments)", tags=(torch.Tag.pt2_compliant_tag,)
)
torch.library.define(
    "molgcn::encode_backward",
    f"(Tensor grad_states, Tensor moments, {_ARGUMENTS}) -> ({', '.join(f'Tensor grad_{name}' for name in PARAMETERS)})",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def encode(inputs: EncodeInputs) -> Encoded:
    r"""Return the encodings :math:`x W^T + b` and :math:`\mathrm{norm}(r) V^T + c` of rows x and walks r, side by side or added.

    Args:
        inputs: The arguments; see :class:`EncodeInputs`. The states are differentiable any number of times in weights and biases.

    Raises:
        ValueError: If a tensor's shape, dtype or device does not fit, or if a gradient of `x` or `walks` is wanted.
    """
    data = {"x": inputs.x, "walks": inputs.walks}
    if torch.is_grad_enabled() and (wanted := [name for name, rows in data.items() if rows is not None and rows.requires_grad]):
        raise ValueError(f"encode: {' and '.join(wanted)} would get no gradient; use encode_reference")
    return Encoded(*OPERATOR.outputs(inputs))


def encode_reference(inputs: EncodeInputs) -> Tensor:
    """Return the states that :func:`encode` returns, computed by plain PyTorch on any device and in any dtype."""
    x, walks, rows = inputs.x, inputs.walks, torch.arange(inputs.x.shape[0], device=inputs.x.device)[:, None]
    real = rows < (x.shape[0] if inputs.num_real is None else inputs.num_real)
    states = F.linear(torch.where(real, x, 0), inputs.weight, inputs.bias)
    if walks is not None and inputs.walk_weight is not None:
        walks = _normalised(inputs, torch.where(real, walks, 0), real)
        encoded = F.linear(walks, inputs.walk_weight, inputs.walk_bias)
        states = states + encoded if inputs.add else torch.cat([states, encoded], dim=1)
    return torch.where(real, states, 0)


def _normalised(inputs: EncodeInputs, walks: Tensor, real: Tensor) -> Tensor:
    """Return the walks [R, k] after the norm, if there is one. Padding holds zeros."""
    weight, bias = inputs.norm_weight, inputs.norm_bias
    if weight is None or bias is None:
        return walks
    mean, variance = inputs.running_mean, inputs.running_var
    if inputs.training:
        rows = real.sum().clamp(min=1)
        mean = walks.sum(0) / rows
        variance = torch.where(real, walks - mean, 0).square().sum(0) / rows
    assert mean is not None
    assert variance is not None
    return (walks - mean) * (variance + inputs.eps).rsqrt() * weight + bias


def fits(inputs: EncodeInputs) -> bool:
    """Return whether the operator supports the device, the dtypes and the widths of a call."""
    if not inputs.x.is_cuda:
        return False
    *tensors, count = inputs.tensors
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None} == {torch.float32} and (count is None or count.dtype == torch.int32)
    return dtypes and _has_room(inputs)


def _has_room(inputs: EncodeInputs) -> bool:
    columns = inputs.x.shape[1] + inputs.num_steps
    return inputs.x.shape[1] > 0 and columns <= MAX_IN and inputs.num_normed <= MAX_NORMED and sum(inputs.widths) <= MAX_OUT


def check(inputs: EncodeInputs) -> None:
    """Check the arguments, since kernels read them by address.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    x = inputs.x
    if x.dim() != 2 or x.dtype != torch.float32:
        raise ValueError(f"encode: expected x [R, F] in float32, got {list(x.shape)} in {x.dtype}")
    for one, other in (("walks", "walk_weight"), ("norm_weight", "norm_bias")):
        if (getattr(inputs, one) is None) != (getattr(inputs, other) is None):
            raise ValueError(f"encode: expected both {one} and {other}, or neither")
    first, second = inputs.widths
    second, steps = first if inputs.add else second, inputs.num_steps
    shapes: dict[str, tuple[int, ...]] = {"weight": (first, x.shape[1]), "bias": (first,)}
    shapes |= {"walks": (x.shape[0], steps), "walk_weight": (second, steps), "walk_bias": (second,)}
    shapes |= dict.fromkeys(("norm_weight", "norm_bias", "running_mean", "running_var"), (steps,))
    for name, shape in shapes.items():
        tensor = getattr(inputs, name)
        if tensor is not None:
            expect("encode", name, tensor, shape, x)
    if inputs.num_real is not None:
        expect("encode", "num_real", inputs.num_real, (), x, torch.int32)
    if not _has_room(inputs):
        raise ValueError(
            f"encode: expected 1 to {MAX_IN} columns of x and walks, at most {MAX_NORMED} of walks with a norm, and at most {MAX_OUT} of "
            f"states, got {x.shape[1]} of x, {steps} of walks, and {first} and {second} of states"
        )


def check_backward(grad_states: Tensor, moments: Tensor, inputs: EncodeInputs) -> None:
    """Check the arguments of `molgcn::encode_backward` besides its inputs, which :func:`check` has checked.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    expect("encode_backward", "grad_states", grad_states, (inputs.x.shape[0], inputs.out_channels), inputs.x)
    check_moments(moments, inputs)


def check_moments(moments: Tensor, inputs: EncodeInputs) -> None:
    """Check the moments that forward has returned.

    Raises:
        ValueError: If they do not fit.
    """
    expect("encode_backward", "moments", moments, (3, inputs.num_normed), inputs.x)


@register_fake("molgcn::encode")
def empty_outputs(*args: Any) -> Encoded:
    """Return uninitialised outputs."""
    inputs = EncodeInputs(*args)
    states = inputs.x.new_empty(inputs.x.shape[0], inputs.out_channels)
    statistics = inputs.x.new_empty(2, inputs.num_normed if inputs.training else 0)
    return Encoded(states, statistics, inputs.x.new_empty(3, inputs.num_normed))


@register_fake("molgcn::encode_backward")
def empty_gradients(grad_states: Tensor, moments: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """Return uninitialised gradients of weights and biases, [0] for those that there are not."""
    inputs = EncodeInputs(*args)
    return tuple(inputs.x.new_empty(0 if parameter is None else parameter.shape) for parameter in inputs.parameters)


def _gradients(
    backward: Callable[..., Any], grad_states: Tensor, kept: tuple[Tensor, ...], wanted: list[bool], inputs: EncodeInputs
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = backward(grad_states, *kept, *inputs)
    return found


def _kept(outputs: tuple[Tensor, ...], inputs: EncodeInputs) -> tuple[tuple[Tensor, ...], EncodeInputs]:
    return outputs[2:], inputs.for_backward


OPERATOR = Operator("molgcn::encode", EncodeInputs, NUM_TENSORS, PARAMETERS, _gradients, lambda: encode_reference, _kept)
