"""Adam's step on CUDA: clipping and update of all parameters in two launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header

_THREADS, _ELEMENTS = 256, 1024  # per block, as in cuda/adam.cu
_SHARED_BYTES = 128
_SIZES = (64, 560)  # lengths of the struct's array; the larger one is just below CUDA's limit of 32,764 bytes
MOST_TENSORS, MOST_GROUPS = _SIZES[-1], 8
"""The most parameters with gradients, and the most groups of them, that a step takes."""

_HEADER = Header(
    "adam_structs.h",
    Entry=[
        ("float*", "parameter"),
        ("const float*", "gradient"),
        ("float*", "mean square"),  # the moving averages of the gradient and of its square
        ("float*", "step"),
        ("int", "size first_block group"),
    ],
    Group=[
        ("const float*", "rate_address"),  # null: `rate` is the learning rate
        ("const double*", "beta1_address"),  # null: `beta1` is the value
        ("double", "beta1 beta2"),
        ("float", "rate eps weight_decay"),
        ("int", "decoupled"),
    ],
    Parameters=[
        ("Entry", "tensors[MAX_TENSORS]"),
        ("Group", "groups[MAX_GROUPS]"),
        ("double*", "squares corrections"),  # one number per block; two per tensor
        ("float", "max_norm"),  # 0: no clipping
        ("int", "num_tensors"),
    ],
)


class Parameter(NamedTuple):
    """A parameter with its gradient and state, all contiguous in float32 on one device.

    Attributes:
        parameter: The parameter. Changed in index.
        gradient: Its gradient, in the same shape.
        mean: The moving average of the gradient. Changed in index.
        square: The moving average of the gradient's square. Changed in index.
        step: The number of steps, a scalar. Changed in index.
    """

    parameter: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    step: Tensor


def adam_step(groups: Sequence[tuple[Mapping[str, Any], Sequence[Parameter]]], max_norm: float | None) -> None:
    r"""Take one step of Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019) for all parameters.

    The gradients g are first scaled by :math:`\min(1, c / (\lVert g \rVert + 10^{-6}))`, as :func:`torch.nn.utils.clip_grad_norm_` does;
    they are not changed. Sums have a fixed order.

    Args:
        groups: Options and parameters of each of at most `MOST_GROUPS` groups, with at least one and at most `MOST_TENSORS` parameters in
            all. Options are those of `torch.optim.Adam`: "lr" (a number, or a float32 scalar on the device), "betas" (the first a number,
            or a float64 scalar on the device), "eps", "weight_decay" and "decoupled_weight_decay".
        max_norm: The largest norm c of all gradients together; None for no clipping.
    """
    count = sum(len(parameters) for _, parameters in groups)
    macros: dict[str, int] = {"MAX_TENSORS": next(size for size in _SIZES if count <= size), "MAX_GROUPS": MOST_GROUPS}
    it = _HEADER.ctype("Parameters", **macros)()
    index = blocks = 0
    for number, (options, parameters) in enumerate(groups):
        _set_options(it.groups[number], options)
        for one in parameters:
            size = one.parameter.numel()
            it.tensors[index] = (*(tensor.data_ptr() for tensor in one), size, blocks, number)
            index, blocks = index + 1, blocks + max(-(-size // _ELEMENTS), 1)
    device = next(one.parameter.device for _, parameters in groups for one in parameters)
    scratch = torch.empty(blocks + 2 * count, dtype=torch.float64, device=device)
    it.squares, it.corrections = scratch.data_ptr(), scratch[blocks:].data_ptr()
    it.max_norm, it.num_tensors = max_norm or 0.0, count
    # The first kernel starts when all that came before has ended: gradients may come from operations of PyTorch, of NCCL or of memory.
    for name, overlap in (("adam_begin", False), ("adam_update", True)):
        kernel("adam.cu", name, macros, device).launch(blocks, _THREADS, _SHARED_BYTES, it, overlap=overlap)


def _set_options(group: Any, options: Mapping[str, Any]) -> None:
    rate = options["lr"]
    if isinstance(rate, Tensor):
        group.rate_address = rate.data_ptr()
    else:
        group.rate = rate
    beta1, group.beta2 = options["betas"]
    if isinstance(beta1, Tensor):
        group.beta1_address = beta1.data_ptr()
    else:
        group.beta1 = beta1
    group.eps, group.weight_decay, group.decoupled = options["eps"], options["weight_decay"], options["decoupled_weight_decay"]
