"""Which steps of a forward pass share a launch on CUDA, and what a launch leaves for the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.gradient_steps import GradStep
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.products_plan import MAX_END_WIDTH, MAX_SUMMED_WIDTH, MAX_TOGETHER, Widths, fits_shared
from molgcn.ops.layer_network.program import ends_product, first_products, signed_values
from molgcn.ops.layer_network.steps import Attend, Expand, Finish, Gate, Gather, Linear, Step, SumNonBacktracking, values_read


class Launch(NamedTuple):
    """A launch of a forward pass.

    Attributes:
        step: The step that it computes.
        before: The end of a layer that it first applies to the rows that the step reads, or None.
        gather: The :class:`Gather` step whose result `step` multiplies, if it computes that too; or None. `before` then comes before it.
        then: The next :class:`Linear` step, if it multiplies the result of `step` in the same launch, or None.
        after: The end of a layer without norm that it applies to the last product, or to rows of edges; or None.
        leaves: The step whose batch norm reads the result, or with `expand` the gates, and for which it leaves their moments; or None.
        beside: The next :class:`Linear` step, if it adds the result of `step` in the same launch, or None.
        expand: The :class:`Expand` step whose result the :class:`Gate` step reads as gates, if the launch computes that too; or None.
        parts: The next :class:`Linear` steps, if they multiply the same rows in the same launch.
    """

    step: Step
    before: Finish | None = None
    gather: Gather | None = None
    then: Linear | None = None
    after: Finish | None = None
    leaves: Finish | None = None
    beside: Linear | None = None
    expand: Expand | None = None
    parts: tuple[Linear, ...] = ()

    @property
    def last(self) -> Step:
        """The step whose result the launch writes last, before the end of a layer."""
        return self.beside or self.then or (self.step, *self.parts)[-1]


def uses_batch(step: Step | None, run: Pass) -> TypeGuard[Finish]:
    """Return whether a step has a norm with the statistics of the batch."""
    return isinstance(step, Finish) and step.norm in run.program.batch_norms and run.call.options.training


def forward_launches(run: Pass, gpu: Gpu | None) -> dict[Step, Launch]:
    """Return the launches of a forward pass, each under its last step.

    Args:
        run: The pass.
        gpu: The GPU if products run by the project's kernels, which take other steps into their launches; otherwise None.
    """
    launches: dict[Step, Launch] = {}
    together: list[Step] = []
    steps = _in_order(run)
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        together.append(step)
        if following is not None and _joins(run, together, following, gpu):
            continue
        launches[step] = _launch(run, together, gpu is not None)
        together = []
    return launches


def _in_order(run: Pass) -> list[Step]:
    """Return the steps of a forward pass with the end of a layer right before the product that reads it first, if one does."""
    order = list(run.program.steps)
    for step, reader in first_products(run.program).items():
        if reader.add not in run.summed:  # that stays beside the product that it adds
            order.remove(step)
            order.insert(order.index(reader), step)
    return order


def _joins(run: Pass, together: Sequence[Step], following: Step, gpu: Gpu | None) -> bool:
    """Return whether the following step can be in the same launch as the steps before it, whose result it then reads."""
    step = together[-1]
    if step.out in run.summed:
        return gpu is not None
    if isinstance(step, Expand):
        if isinstance(following, Finish):
            plain = following.source == step.out and following.norm is None and following.add is None
            return plain and not _ended_by_reader(run, following)
        return isinstance(following, Gate) and following.gates == step.out
    if isinstance(step, Linear) and isinstance(following, Linear) and following.source == step.source:
        return gpu is not None and _are_parts(run, [*together, following])
    if following.source != step.out or following.out in run.summed:  # two rows that are multiplied are read as they are
        return False
    if len(_of_same_rows(together)) > 1:
        return False
    if isinstance(step, Finish):
        if isinstance(following, SumNonBacktracking):
            return len(together) == 1 and _ended_by_reader(run, step)
        if len(together) > 1 or step.norm not in run.program.batch_norms:
            return False
        if isinstance(following, Gather):  # each neighbour computes it again, which takes large batches longer than a launch
            return step.dropout is None and run.graph.num_nodes <= FEW_ATOMS
        return isinstance(following, Linear) and gpu is not None and run.width(step.source) <= MAX_END_WIDTH
    if isinstance(step, Gather):
        return isinstance(following, Linear) and gpu is not None and _gathers(run, gpu, step, following)
    if not isinstance(step, Linear) or gpu is None:
        return False
    adds = step.add is not None and step.add not in run.summed
    if isinstance(following, Linear) and not adds:
        one = not any(isinstance(other, Linear) for other in together[:-1])
        return one and are_pair(run, gpu, step.source, step.out, following.out)
    return isinstance(following, Finish) and ends_product(step if adds else step._replace(add=None), following)


def _ended_by_reader(run: Pass, end: Finish) -> bool:
    """Return whether the sums over bonds that continue others, which alone read the end of a layer, can apply it."""
    readers = [step for step in run.program.steps if end.out in values_read(step)]
    plain = end.norm is None and end.add is None and not is_read_later(run, end.out)
    return plain and len(readers) == 1 and isinstance(readers[0], SumNonBacktracking)


def _launch(run: Pass, together: Sequence[Step], tensor_cores: bool) -> Launch:
    steps = list(together)
    first, last = steps[0], steps[-1]
    if isinstance(first, Expand) and isinstance(last, Gate):
        return Launch(last, leaves=_normed(run, first.out), expand=first)
    before = first if len(steps) > 1 and isinstance(first, Finish) else None
    step, *rest = steps[1:] if before is not None else steps
    gather = step if isinstance(step, Gather) and rest else None
    if gather is not None:
        step, *rest = rest
    if parts := tuple(_of_same_rows(steps)[1:]):
        return Launch(step, before, parts=parts)
    second = next((other for other in rest if isinstance(other, Linear)), None)
    beside = second if step.out in run.summed else None
    after = next((other for other in rest if isinstance(other, Finish)), None)
    leaves = _normed(run, last.out) if _leaves(run, step, tensor_cores) else None
    return Launch(step, before, gather, None if beside is not None else second, after, leaves, beside)


def _of_same_rows(together: Sequence[Step]) -> list[Linear]:
    """Return the products of the rows that the last of some steps multiplies."""
    last = together[-1]
    return [step for step in together if isinstance(step, Linear) and isinstance(last, Linear) and step.source == last.source]


def _are_parts(run: Pass, together: Sequence[Step]) -> bool:
    """Return whether one launch can compute products of the same rows, which may be the end of a layer. It writes results as they are."""
    products = _of_same_rows(together)
    if [step for step in together if not isinstance(step, Finish)] != products:
        return False
    special = run.summed | signed_values(run.program)
    plain = all(not step.relu and step.add is None and step.out not in special and _normed(run, step.out) is None for step in products)
    widths = {run.width(step.out) for step in products}
    return plain and len(products) <= MAX_TOGETHER and len(widths) == 1 and max(widths) <= MAX_SUMMED_WIDTH


def _gathers(run: Pass, gpu: Gpu, gather: Gather, product: Linear) -> bool:
    """Return whether the launch of a product can compute the gather before it. In large batches too few loads would be under way."""
    simple = not gather.aggr.startswith("gcn") and gather.bias is None
    widths = Widths(run.width(gather.out), 0, run.width(product.out))
    return simple and run.graph.num_nodes <= FEW_ATOMS and fits_shared(run.num_rows(gather.out), widths, gpu)


def are_pair(run: Pass, gpu: Gpu, source: int, middle: int, out: int) -> bool:
    """Return whether two products can be one launch.

    In large batches a wide middle costs more registers than the launch is worth: 9.8 ms instead of 9.1 for GIN+ of width 80 on an H200.
    """
    widths = Widths(run.width(source), run.width(middle), run.width(out))
    return fits_shared(run.num_rows(source), widths, gpu) and (widths.middle <= widths.out or run.graph.num_nodes <= FEW_ATOMS)


def _normed(run: Pass, value: int) -> Finish | None:
    """Return the step of a forward pass with a norm that takes its statistics from a value, or None."""
    if run.is_backward:
        return None
    return next((step for step in run.program.steps if uses_batch(step, run) and step.source == value), None)


def _leaves(run: Pass, step: Step, tensor_cores: bool) -> bool:
    """Return whether the launch of a step can leave moments."""
    if isinstance(step, Finish):
        return step.norm is None or step.norm in run.program.batch_norms
    return isinstance(step, Gather | Attend) or (isinstance(step, Linear) and tensor_cores)


def pooled_end(run: Pass, launches: Mapping[Step, Launch]) -> Finish | None:
    """Return the end of the last layer if the launch of the pooling applies it: nothing else reads its value.

    Args:
        run: The pass.
        launches: The launches of the forward pass.
    """
    last = run.program.steps[-1]
    if (
        run.program.pool == "none"
        or not isinstance(last, Finish)
        or launches[last].step is not last
        or last.out in run.kept
        or run.graph.num_graphs == 0
    ):
        return None
    return last if last.norm is None or last.norm in run.program.batch_norms else None


def again_launches(run: Pass, steps: Sequence[GradStep | Step]) -> dict[Step, Launch]:
    """Return the launches of the steps of the forward pass among the steps of a backward pass, each under its last step."""
    launches: dict[Step, Launch] = {}
    first: Step | None = None
    for step in steps:
        if not isinstance(step, Step):
            continue
        if step.out in run.summed:
            first = step
            continue
        if first is None:
            launches[step] = Launch(step)
            continue
        assert isinstance(step, Linear)
        launches[step] = Launch(first, beside=step)
        first = None
    return launches


def is_read_later(run: Pass, value: int) -> bool:
    """Return whether anything but the next step reads a value, so that a launch of both has to write it."""
    return value in run.kept or value in run.program.outs or sum(value in values_read(step) for step in run.program.steps) > 1
