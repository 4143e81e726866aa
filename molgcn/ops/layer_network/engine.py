"""Run a network's forward and backward pass step by step, with a device's implementation of the steps."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.gradient_steps import GradStep, PoolGrad
from molgcn.ops.layer_network.implementation import Outputs
from molgcn.ops.layer_network.passes import Pass, Rows, saved_numbers
from molgcn.ops.layer_network.steps import BONDS, Step, X


class Steps(Protocol):
    """An implementation of the steps of one pass. It writes zeros to rows of padding and to columns between width and stride.

    Attributes:
        signs_alone: Whether it needs no rows of the values in :func:`.passes.signs_alone` and :func:`.passes.summed_values`.
    """

    signs_alone: bool

    def __init__(self, run: Pass) -> None: ...

    def pad(self, given: Tensor, to: Rows) -> None:
        """Copy an input whose width is not a multiple of four."""

    def forward(self, step: Step) -> None:
        """Compute a step's value, or leave it to the step or the pooling that reads it next.

        In a backward pass it is computed again, with the moments that forward has kept.
        """

    def pool(self, value: int, pooled: Tensor) -> None:
        """Compute the pooled rows of a value, `pooled` [B, H]."""

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor) -> None:
        """Compute the gradient that a step describes, given the gradient of the value's pooled rows, `grad_pooled` [B, H]."""

    def backward(self, step: GradStep) -> None:
        """Compute the gradients that a backward step describes."""


StepsOf = type[Steps]


def forward(call: LayerNetworkCall, steps_of: StepsOf) -> Outputs:
    """Return the operator's outputs."""
    saved = call.graph.x.new_empty(saved_numbers(call, signs_alone=steps_of.signs_alone))
    run = Pass(call, saved, backward=False, signs_alone=steps_of.signs_alone)
    steps = steps_of(run)
    for value, given in ((X, run.graph.x), (BONDS, run.graph.bonds)):
        if given is not None and given.shape[1] % 4 > 0:
            steps.pad(given, run.rows(value))
    for step in run.program.steps:
        steps.forward(step)
    pooled = call.graph.x.new_empty(call.num_pooled, call.program.pooled_channels)
    for value, rows in zip(call.program.outs, of_outs(call, pooled), strict=True):
        steps.pool(value, rows)
    return Outputs(pooled, run.new_statistics, saved if call.options.save_for_backward else saved.new_empty(0))


def backward(
    call: LayerNetworkCall, grad_pooled: Tensor, saved: Tensor, steps_of: StepsOf, *, grad_x: bool, grad_bonds: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradients of x, of the bonds' rows and of the parameters. The first two are empty if they are not wanted.

    Args:
        call: The network and the batch.
        grad_pooled: The gradient of the pooled rows [B, H], with H columns for each value that is pooled.
        saved: The tensor that the forward pass has saved.
        steps_of: The implementation of the steps.
        grad_x: Whether the gradient of x is wanted.
        grad_bonds: Whether the gradient of the bonds' rows is wanted.
    """
    run = Pass(call, saved, backward=True, signs_alone=steps_of.signs_alone, grad_x=grad_x, grad_bonds=grad_bonds)
    steps = steps_of(run)
    grads = of_outs(call, grad_pooled.contiguous())
    for step in run.backward.steps:
        if isinstance(step, Step):
            steps.forward(step)
        elif isinstance(step, PoolGrad):
            steps.pool_grad(step, grads[step.place])
        else:
            steps.backward(step)
    of_x, of_bonds = (_gradient(run, number) for number in (run.backward.of_x, run.backward.of_bonds))
    return of_x, of_bonds, list(run.grad_parameters.values())


def of_outs(call: LayerNetworkCall, pooled: Tensor) -> tuple[Tensor, ...]:
    """Return the columns of pooled rows that belong to each value that is pooled, as views [B, H]."""
    return pooled.split(call.program.hidden_channels, dim=1)


def _gradient(run: Pass, number: int | None) -> Tensor:
    return run.graph.x.new_empty(0, 0) if number is None else run.gradient(number).values
