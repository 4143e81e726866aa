"""The derivative of `molgcn::aggregate`, by `molgcn::aggregate_backward`. Import this module to register it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.aggregate_reference import aggregate_reference
from molgcn.ops.derivative import Derivative

_Outputs = tuple[Tensor, ...]


def _kept(outputs: _Outputs, inputs: AggregateInputs) -> tuple[_Outputs, AggregateInputs]:
    """Return what backward needs: the output for `max`, and the inputs, with only the shape of x if its values are not needed."""
    x = inputs.x if inputs.gradients_need_x else inputs.x.new_empty(1, 1).expand(inputs.x.shape)
    return (outputs if inputs.reduce == "max" else ()), inputs._replace(x=x)


def _gradients(grad_out: Tensor, outputs: _Outputs, wanted: list[bool], inputs: AggregateInputs) -> Sequence[Tensor]:
    found: Sequence[Tensor] = torch.ops.molgcn.aggregate_backward.default(grad_out, outputs[0] if outputs else None, wanted, *inputs)
    return found


Derivative("molgcn::aggregate", AggregateInputs, 3, ("x", "edge_weight"), _gradients, lambda: aggregate_reference, _kept).register()
