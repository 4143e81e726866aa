"""Optimiser steps by PyTorch's kernels, without the work that `Optimizer.step` does around them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer


class FusedUpdate:
    """Takes steps of a fused optimiser on a CPU by PyTorch's own kernel, with lists of tensors that its `step` would gather each time.

    Args:
        optimizer: an optimiser of :func:`molgcn.training.optim.build_optimizer` for which :meth:`why_not` returns None. It has stepped
            before, so that its state exists. The step counts in its state become views of one tensor.
        gradients: the gradient of each of its parameters, written anew before each call.
    """

    def __init__(self, optimizer: Optimizer, gradients: Mapping[Tensor, Tensor]) -> None:
        (self.group,) = optimizer.param_groups
        parameters = self.group["params"]
        lists = [parameter.detach() for parameter in parameters], [gradients[parameter] for parameter in parameters]
        if isinstance(optimizer, SGD):
            momenta = [optimizer.state[parameter]["momentum_buffer"] for parameter in parameters] if self.group["momentum"] else []
            self._run = partial(torch._fused_sgd_, *lists, momenta, is_first_step=False)
            self._options: tuple[str, ...] = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
            return
        states = [optimizer.state[parameter] for parameter in parameters]
        self._steps = torch.stack([state["step"] for state in states])
        for state, step in zip(states, self._steps.unbind(), strict=True):
            state["step"] = step
        moments = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        kernel = torch._fused_adamw_ if isinstance(optimizer, AdamW) else torch._fused_adam_
        self._run = partial(kernel, *lists, *moments, [], [state["step"] for state in states], amsgrad=False)
        self._options = ("lr", "weight_decay", "eps", "maximize")

    @staticmethod
    def why_not(optimizer: Optimizer) -> str | None:
        """Return why an optimiser cannot step in this way, in words; None where it can, as those that this project builds."""
        if type(optimizer) not in (Adam, AdamW, SGD) or len(optimizer.param_groups) != 1:
            return "the optimiser is not Adam, AdamW or SGD with one group of parameters"
        (group,) = optimizer.param_groups
        usual = group["fused"] and not group.get("amsgrad") and not group.get("differentiable")
        decoupled = group.get("decoupled_weight_decay", False) == isinstance(optimizer, AdamW)
        return None if usual and decoupled else "the optimiser is not fused, or has options that are not used here"

    def __call__(self) -> None:
        """Take one step with the group's present learning rate and options."""
        options = {name: self.group[name] for name in self._options}
        if "betas" in self.group:
            self._steps += 1
            options["beta1"], options["beta2"] = self.group["betas"]
        self._run(**options)
