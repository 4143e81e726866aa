"""Optimiser steps without what PyTorch does around its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer


class FusedUpdate:
    """Steps of a fused optimiser on a CPU by PyTorch's own kernel, over lists that its `step` gathers anew each time.

    Args:
        optimizer: as :func:`molgcn.training.optim.build_optimizer` makes it, where :meth:`why_not` has no objection. It has stepped before,
            so that its state exists. The counts of steps in it become views of one tensor.
        gradients: of its parameters, written anew before each call.
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
        """Return why an optimiser cannot step so, in words; None for the form in which this project makes its own."""
        if type(optimizer) not in (Adam, AdamW, SGD) or len(optimizer.param_groups) != 1:
            return "the optimiser is no Adam, AdamW or SGD with one group of parameters"
        (group,) = optimizer.param_groups
        usual = group["fused"] and not group.get("amsgrad") and not group.get("differentiable")
        decoupled = group.get("decoupled_weight_decay", False) == isinstance(optimizer, AdamW)
        return None if usual and decoupled else "the optimiser is not fused, or has options that are not used here"

    def __call__(self) -> None:
        """One step with the group's present rate and options."""
        options = {name: self.group[name] for name in self._options}
        if "betas" in self.group:
            self._steps += 1
            options["beta1"], options["beta2"] = self.group["betas"]
        self._run(**options)
