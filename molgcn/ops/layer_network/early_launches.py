"""Which launches of products run beside the kernel before them on CUDA, since neither touches what the other writes.

The kernel before has itself waited until what came before it had ended. So of two launches that follow each other only one is early. In
small batches the two share the multiprocessors: a block with the weights in shared memory leaves no room for another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch
from molgcn.ops.layer_network.gradient_steps import FinishGrad, GradStep, InputGrad
from molgcn.ops.layer_network.launches_cuda import Launch
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.steps import Finish, Linear, Step, values_made, values_read


class Beside(NamedTuple):
    """How a launch of products runs beside another kernel.

    Attributes:
        early: Whether it starts before the kernel before it has ended.
        share: The share of the multiprocessors that it is planned for.
    """

    early: bool = False
    share: float = 1.0

    def part_of(self, gpu: Gpu) -> Gpu:
        """Return the part of a GPU that the launch is planned for."""
        return gpu._replace(num_multiprocessors=max(1, round(self.share * gpu.num_multiprocessors)))


ALONE = Beside()


def early_launches(run: Pass, launches: Mapping[Step, Launch]) -> Mapping[GradStep | Step, Beside]:
    """Return how launches of a forward pass run beside each other, by the first product of each. Others run alone.

    Args:
        run: The pass.
        launches: Its launches, each under its last step.
    """
    steps = run.program.steps
    return dict(_beside(run, steps, [launches[step] for step in steps if step in launches]))


def early_grad_launches(
    run: Pass, steps: Sequence[GradStep | Step], launches: Mapping[GradStep, GradLaunch]
) -> Mapping[GradStep | Step, Beside]:
    """Return the same of a backward pass with these `steps`. Where it computes values again, all launches run alone."""
    if any(isinstance(step, Step) for step in steps):
        return {}
    return dict(_beside(run, steps, [launches[step] for step in steps if not isinstance(step, Step) and step in launches]))


def _beside(
    run: Pass, steps: Sequence[GradStep | Step], launches: Sequence[Launch | GradLaunch]
) -> Iterator[tuple[GradStep | Step, Beside]]:
    few, left, early = run.graph.num_nodes <= FEW_ATOMS, set[Finish | FinishGrad](), False
    for before, launch in pairwise(launches):
        known = launch.before is None or launch.before in left  # otherwise a kernel that leaves parts for its norm comes between
        if before.leaves is not None:
            left.add(before.leaves)
        if not isinstance(launch.step, Linear | InputGrad) or not known or _reads_sums(run, launch):
            early = False
        elif few:
            early = not early and _are_apart(steps, before, launch)
        else:  # the kernel before may merge parts, and what left them has ended
            early = before.leaves is not None
        if early and few:
            share = _work(run, before) / (_work(run, before) + _work(run, launch))
            yield before.step, Beside(share=share)
            yield launch.step, Beside(early, 1 - share)
        elif early:
            yield launch.step, Beside(early)


def _work(run: Pass, launch: Launch | GradLaunch) -> int:
    """Return how many numbers a launch of products reads and writes, about."""
    values = [step.out if isinstance(step, Step) else step.step.out for step in _products(launch)]
    sources = [step.source if isinstance(step, Step) else step.source.value for step in _products(launch)]
    return run.num_rows(values[0]) * sum(map(run.width, {*values, *sources}))


def _products(launch: Launch | GradLaunch) -> list[Linear | InputGrad]:
    return [step for step in _steps(launch) if isinstance(step, Linear | InputGrad)]


def _reads_sums(run: Pass, launch: Launch | GradLaunch) -> bool:
    """Return whether a launch reads gradients of bonds, whose parts a kernel adds up before it."""
    return isinstance(launch.step, InputGrad) and run.program.values[launch.step.step.out].rows == "bonds"


def _are_apart(steps: Sequence[GradStep | Step], before: Launch | GradLaunch, launch: Launch | GradLaunch) -> bool:
    """Return whether launches of products that follow each other touch nothing that the other one writes."""
    if not isinstance(before.step, Linear | InputGrad) or not isinstance(launch.step, Linear | InputGrad):
        return False
    if isinstance(launch, GradLaunch) and (launch.before is not None or launch.mask is not None):
        return False  # the end of a layer may write where the launch before reads
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
