"""Which steps of a backward pass share a launch on CUDA, and what a launch leaves for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple, TypeGuard

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GatherGrad,
    GradStep,
    InputGrad,
    PoolGrad,
    WeightGrads,
)
from molgcn.ops.layer_network.launches_cuda import are_pair, uses_batch
from molgcn.ops.layer_network.layouts import ends_edges
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.products_plan import MAX_END_WIDTH, MAX_SUMMED_WIDTH, MAX_TOGETHER, Widths, fits_shared
from molgcn.ops.layer_network.program import masked_values
from molgcn.ops.layer_network.steps import Step

_Joining = FinishGrad | InputGrad | EdgeGrad | AddGrad


class GradLaunch(NamedTuple):
    """A launch of a backward pass.

    Attributes:
        step: The step that it computes.
        before: The gradient of a layer's end through which it first takes the rows that the step reads, or None.
        mask: The gradient of a layer's end without norm, a relu and perhaps dropout, through which it takes the rows then; or None.
        then: The next :class:`InputGrad` step, if it multiplies the result of `step` in the same launch, or None.
        leaves: The step whose norm's gradient is next, and for which it leaves the sums of the result's columns; or None.
        beside: The next :class:`InputGrad` step, if it multiplies the same gradient as `step` in the same launch, or None.
        sums: The next :class:`InputGrad` steps, if each adds to the result of the one before and the launch computes that sum alone.
        added: The step whose sum `before` adds to its own result, if the launch computes that too; or None.
        after: The gradient of a layer's end as in `mask`, through which it takes its own result; or None.
    """

    step: GradStep
    before: FinishGrad | None = None
    mask: FinishGrad | None = None
    then: InputGrad | None = None
    leaves: FinishGrad | None = None
    beside: InputGrad | None = None
    sums: tuple[InputGrad, ...] = ()
    added: AddGrad | None = None
    after: FinishGrad | None = None

    @property
    def last(self) -> GradStep:
        """The step whose result the launch writes last."""
        return self.after or self.beside or self.then or (self.step, *self.sums)[-1]

    @property
    def add(self) -> int | None:
        """The gradient that a launch of products adds to its last result, or None."""
        added = self.step if self.sums else self.last
        return added.source.add if isinstance(added, InputGrad) else None


def backward_launches(run: Pass, steps: Sequence[GradStep | Step], gpu: Gpu | None) -> dict[GradStep, GradLaunch]:
    """Return the launches of a backward pass, each under its last step. The arguments are those of :func:`forward_launches`."""
    launches: dict[GradStep, GradLaunch] = {}
    together: list[_Joining] = []
    for i, step in enumerate(steps):
        if isinstance(step, Step):  # computes a value again: `again_launches`
            continue
        if _grad_joins(step, together, steps[i + 1 :], run, gpu):
            together.append(step)
            continue
        if together and isinstance(together[0], EdgeGrad) and isinstance(step, FinishGrad):
            launches[step], together = GradLaunch(together[0], after=step), []
            continue
        added = next((other for other in together if isinstance(other, AddGrad)), None)
        ends = [other for other in together if isinstance(other, FinishGrad)]
        first = next((other for other in together if isinstance(other, InputGrad)), None)
        leaves = _summed_next(run, step, steps[i + 1 :], gpu is not None)
        if first is not None and _adds(together[-1], step):
            sums = tuple(other for other in (*together[1:], step) if isinstance(other, InputGrad))
            launches[step], together = GradLaunch(first, leaves=leaves, sums=sums), []
            continue
        second = step if first is not None and isinstance(step, InputGrad) else None
        beside = second if first is not None and second is not None and second.grad == first.grad else None
        mask = ends.pop() if ends and _masks(run, ends[-1]) else None
        then = None if beside is not None else second
        before = ends[0] if ends else None
        launches[step] = GradLaunch(step if first is None else first, before, mask, then, leaves, beside, added=added)
        together = []
    return launches


def _masks(run: Pass, step: FinishGrad) -> bool:
    """Return whether a step needs nothing but the signs that a product has kept."""
    return step.step.source in masked_values(run.program)


def _grad_joins(
    step: GradStep, together: Sequence[_Joining], rest: Sequence[GradStep | Step], run: Pass, gpu: Gpu | None
) -> TypeGuard[_Joining]:
    """Return whether a step and those `together` with it can be in the launch of a step in the `rest` of the steps, mostly a product."""
    following = rest[0] if rest else None
    if isinstance(step, EdgeGrad):
        return gpu is not None and following is not None and ends_edges(run.program, step, following)
    if isinstance(step, FinishGrad) and together and isinstance(together[0], EdgeGrad):
        return False
    if isinstance(step, AddGrad):
        if not isinstance(following, FinishGrad) or following.source.add != step.source.out or step.source.mask is not None:
            return False
        return len(rest) > 1 and isinstance(rest[1], ExpandGrad) and _grad_joins(following, [step], rest[1:], run, gpu)
    if isinstance(step, FinishGrad) and isinstance(following, ExpandGrad):
        plain = step.step.norm is None and step.source.mask is None and following.target is None
        bonds = following.step.bonds
        return plain and following.grad == step.source.out and (bonds is None or run.program.values[bonds].rows == "bonds")
    if isinstance(step, FinishGrad) and isinstance(following, GateGrad):
        columns = run.program.norms.get(step.step.norm or "") != "layer"
        return columns and following.gates is not None and following.gates.add == step.source.out and step.source.add is None
    if gpu is None:
        return False
    if not isinstance(step, (FinishGrad, InputGrad)) or not isinstance(following, (FinishGrad, InputGrad)):
        return False
    one = not any(isinstance(other, InputGrad) for other in together)
    if isinstance(step, InputGrad) and isinstance(following, InputGrad) and _adds(step, following):
        return _are_summed(run, [*together, step, following])
    if not one and _adds(together[-1], step):
        return False
    if isinstance(step, InputGrad) and isinstance(following, InputGrad) and following.grad == step.grad:
        # With operands in the L2 cache, as wider products have them, one launch took up to 20 % longer than two.
        results = run.width(step.source.value), run.width(following.source.value)
        widths = Widths(run.width(step.step.out), *results, beside=True)
        return one and widths.middle == widths.out and fits_shared(run.num_rows(step.step.out), widths, gpu)
    if following.grad != step.source.out or step.source.add is not None:
        return False
    if isinstance(step, FinishGrad):
        plain = step.source.mask is None and (step.step.norm is None or uses_batch(step.step, run))
        if not plain or run.width(step.step.source) > MAX_END_WIDTH:
            return False
        if isinstance(following, InputGrad):
            return True
        return not _masks(run, step) and _masks(run, following) and _grad_joins(following, [step], rest[1:], run, gpu)
    return one and isinstance(following, InputGrad) and are_pair(run, gpu, step.step.out, step.source.value, following.source.value)


def _adds(step: GradStep | Step, following: GradStep | Step) -> bool:
    """Return whether a step adds the gradient that the step before it computes of the same value to its own, and nothing else needs it."""
    return (
        isinstance(step, InputGrad)
        and isinstance(following, InputGrad)
        and following.source.add == step.source.out
        and step.source.mask is None
    )


def _are_summed(run: Pass, products: Sequence[_Joining]) -> bool:
    """Return whether one launch can add up products, which it reads as they are."""
    widths = {run.width(step.step.out) for step in products}
    plain = all(isinstance(step, InputGrad) for step in products) and all(_adds(*pair) for pair in pairwise(products))
    width = max(widths, default=0)
    return plain and len(widths) == 1 and len(products) <= MAX_TOGETHER and len(products) * width <= 2 * MAX_SUMMED_WIDTH


def _summed_next(run: Pass, step: GradStep, rest: Sequence[GradStep | Step], tensor_cores: bool) -> FinishGrad | None:
    """Return the later step that needs sums of the columns of what this step computes, if its launch can leave them."""
    if isinstance(step, FinishGrad):
        able = step.step.norm is None or step.step.norm in run.program.batch_norms
    elif isinstance(step, PoolGrad):
        able = run.program.pool != "none"
    elif isinstance(step, GatherGrad):  # its registers are few, so that it is slower by more than a launch in large batches
        able = run.graph.num_nodes <= FEW_ATOMS
    else:
        able = isinstance(step, InputGrad) and tensor_cores
    if not able or isinstance(step, WeightGrads) or step.source is None:
        return None
    known = takewhile(lambda other: not isinstance(other, Step), rest)  # from there on values are computed again
    return next((end for end in known if isinstance(end, FinishGrad) and end.grad == step.source.out and uses_batch(end.step, run)), None)
