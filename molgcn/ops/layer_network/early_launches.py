"""Which launches of products run beside the kernel before them on CUDA, since neither touches what the other writes.

The kernel before has itself waited until what came before it had ended. So of two launches that follow each other only one is early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch
from molgcn.ops.layer_network.gradient_steps import FinishGrad, GradStep, InputGrad
from molgcn.ops.layer_network.launches_cuda import Launch
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.steps import Finish, Linear, Step, values_made, values_read


def early_launches(run: Pass, launches: Mapping[Step, Launch]) -> frozenset[Step | GradStep]:
    """Return the first products of the launches of a forward pass that are early.

    Args:
        run: The pass.
        launches: Its launches, each under its last step.
    """
    order = [launches[step] for step in run.program.steps if step in launches]
    return frozenset(launch.step for launch in _early(run, order) if isinstance(launch.step, Linear))


def early_grad_launches(run: Pass, launches: Mapping[GradStep, GradLaunch]) -> frozenset[Step | GradStep]:
    """Return the first products of the launches of a backward pass that are early. There are none where values are computed again."""
    steps = run.backward.steps
    if any(isinstance(step, Step) for step in steps):
        return frozenset()
    order = [launches[step] for step in steps if not isinstance(step, Step) and step in launches]
    return frozenset(launch.step for launch in _early(run, order) if isinstance(launch.step, InputGrad))


def _early(run: Pass, launches: Iterable[Launch | GradLaunch]) -> Iterator[Launch | GradLaunch]:
    """Yield the early ones among launches in their order."""
    few, left, early = run.graph.num_nodes <= FEW_ATOMS, set[Finish | FinishGrad](), False
    for before, launch in pairwise(launches):
        known = launch.before is None or launch.before in left  # otherwise a kernel that leaves parts for its norm comes between
        if before.leaves is not None:
            left.add(before.leaves)
        if not isinstance(launch.step, Linear | InputGrad) or not known or _reads_sums(run, launch):
            early = False
        elif few:
            early = not early and _are_apart(run, before, launch)
        else:  # the kernel before may merge parts, and what left them has ended
            early = before.leaves is not None
        if early:
            yield launch


def _reads_sums(run: Pass, launch: Launch | GradLaunch) -> bool:
    """Return whether a launch reads gradients of bonds, whose parts a kernel adds up before it."""
    return isinstance(launch.step, InputGrad) and run.program.values[launch.step.step.out].rows == "bonds"


def _are_apart(run: Pass, before: Launch | GradLaunch, launch: Launch | GradLaunch) -> bool:
    """Return whether launches of products that follow each other touch nothing that the other one writes."""
    if not isinstance(before.step, Linear | InputGrad) or not isinstance(launch.step, Linear | InputGrad):
        return False
    if isinstance(launch, GradLaunch) and (launch.before is not None or launch.mask is not None):
        return False  # the end of a layer may write where the launch before reads
    steps: Sequence[GradStep | Step] = run.backward.steps if run.is_backward else run.program.steps
    if steps.index(launch.step) != steps.index(before.last) + 1:
        return False  # memory is divided so that steps that follow each other may run at the same time: layouts.py
    (read, made), (other_read, other_made) = _touched(before), _touched(launch)
    return made.isdisjoint(other_read | other_made) and read.isdisjoint(other_made)


def _touched(launch: Launch | GradLaunch) -> tuple[set[int], set[int]]:
    """Return the numbers of the values, or in backward of the gradients, that a launch reads and those that it makes."""
    read, made = set[int](), set[int]()
    for step in _steps(launch):
        if isinstance(step, FinishGrad | InputGrad):
            read |= {step.grad} if step.source.add is None else {step.grad, step.source.add}
            made.add(step.source.out)
        elif isinstance(step, Step):
            read.update(values_read(step))
            made.update(values_made(step))
    return read, made


def _steps(launch: Launch | GradLaunch) -> Iterator[Step | GradStep]:
    more = launch.sums if isinstance(launch, GradLaunch) else launch.parts
    first = (launch.before, launch.step, launch.then, launch.beside)
    others = (launch.mask,) if isinstance(launch, GradLaunch) else (launch.gather, launch.after)
    yield from (step for step in (*first, *others, *more) if step is not None)
