"""The optimiser Adam with clipping, on CUDA in two launches for all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam
from torch.optim.adam import adam

from molgcn.ops.adam_cuda import MOST_GROUPS, MOST_TENSORS, Parameter, adam_step


class ClippedAdam(Adam):
    """Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019) whose steps clip the norm of the gradients first.

    A step equals :func:`torch.nn.utils.clip_grad_norm_` and a step of `torch.optim.Adam(fused=True)` up to rounding, and the state dict is
    the same. Contiguous float32 parameters on one GPU take :func:`molgcn.ops.adam_cuda.adam_step`, and all others PyTorch's functions.

    Args:
        parameters: parameters, or groups of them.
        max_norm: the largest norm of all gradients together; None for no clipping.
        decoupled_weight_decay: whether it is AdamW.
        **options: `lr`, `betas`, `eps` and `weight_decay` of `torch.optim.Adam`.
    """

    def __init__(self, parameters: Iterable[Any], max_norm: float | None, *, decoupled_weight_decay: bool, **options: Any) -> None:
        super().__init__(parameters, fused=True, decoupled_weight_decay=decoupled_weight_decay, **options)
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, and return the value of `closure`, which computes the gradients anew if it is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [(group, self._with_gradients(group)) for group in self.param_groups]
        if _fits([tensor for _, parameters in groups for one in parameters for tensor in one], len(groups), len(Parameter._fields)):
            adam_step(groups, self.max_norm)
        else:
            self._step_by_torch(groups)
        return loss

    @property
    def takes_tensors(self) -> bool:
        """Whether "lr" and the first of "betas" may be scalars on the device: if this project's kernels take the step."""
        return _fits([parameter for group in self.param_groups for parameter in group["params"]], len(self.param_groups))

    def _with_gradients(self, group: dict[str, Any]) -> list[Parameter]:
        """Return the parameters of a group that have gradients, with their state, which is made on first use."""
        lists: list[list[Tensor]] = [[] for _ in range(6)]
        self._init_group(group, *lists)
        parameters, gradients, means, squares, _, steps = lists
        return list(map(Parameter, parameters, gradients, means, squares, steps))

    def _step_by_torch(self, groups: list[tuple[dict[str, Any], list[Parameter]]]) -> None:
        if self.max_norm is not None:
            clip_grad_norm_([one.parameter for _, parameters in groups for one in parameters], self.max_norm)
        for group, parameters in groups:
            values, gradients, means, squares, steps = ([one[field] for one in parameters] for field in range(len(Parameter._fields)))
            beta1, beta2 = group["betas"]
            options = {name: group[name] for name in ("lr", "weight_decay", "eps", "maximize", "capturable", "decoupled_weight_decay")}
            adam(values, gradients, means, squares, [], steps, fused=True, amsgrad=False, beta1=beta1, beta2=beta2, **options)


def _fits(tensors: list[Tensor], num_groups: int, of_each: int = 1) -> bool:
    """Return whether the kernels take a step with these parameters, or with all tensors that belong to them, `of_each` one as many."""
    if not 0 < len(tensors) <= of_each * MOST_TENSORS or num_groups > MOST_GROUPS:
        return False
    device = tensors[0].device
    return device.type == "cuda" and all(
        tensor.device == device and tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in tensors
    )
