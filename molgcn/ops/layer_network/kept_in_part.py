"""Values of a program that CUDA keeps as signs alone, or not at all, since the launch that computes them also computes what follows."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

from molgcn.ops.layer_network.backward import backward_of
from molgcn.ops.layer_network.gradient_steps import InputGrad
from molgcn.ops.layer_network.products_plan import MAX_END_WIDTH, MAX_SUMMED_WIDTH
from molgcn.ops.layer_network.program import Program, masked_values
from molgcn.ops.layer_network.steps import Expand, Finish, Linear, values_read


@cache
def signs_alone(program: Program) -> frozenset[int]:
    """Return the values that no launch on CUDA reads but for their signs, whatever gradients are wanted.

    A product computes each of them, and the end of the layer, a relu without norm, in the same launch. In backward the next product has its
    gradient in its launch.
    """
    backward = backward_of(program, False, False)
    back = {step.step.out for step in backward.steps if isinstance(step, InputGrad)}
    narrow = {number for number, value in enumerate(program.values) if value.width <= MAX_END_WIDTH}
    return masked_values(program) & back & narrow


@cache
def signs_kept(program: Program) -> frozenset[int]:
    """Return the rows of edges of which backward needs nothing but the signs, since a relu without norm follows the step that makes them.

    One launch computes both, and in backward one launch their gradients.
    """
    readers, found = Counter(value for read in backward_of(program, True, True).read for value in read), set[int]()
    for step, end in pairwise(program.steps):
        if not isinstance(step, Expand) or not isinstance(end, Finish) or end.source != step.out or step.target is not None:
            continue
        bonds = step.bonds is None or program.values[step.bonds].rows == "bonds"
        if bonds and end.activation == "relu" and end.norm is None and end.add is None and readers[step.out] == 1:
            found.add(step.out)
    return frozenset(found) - {*program.outs}


@cache
def summed_values(program: Program) -> frozenset[int]:
    """Return the products that the next product adds and nothing else reads, so that one launch on CUDA computes both."""
    read = [*program.outs, *(value for step in program.steps for value in values_read(step))]
    found, values = set[int](), program.values
    for step, following in pairwise(program.steps):
        if not isinstance(step, Linear) or not isinstance(following, Linear) or following.add != step.out:
            continue
        alone = read.count(step.out) == 1 and step.add is None and not step.relu and (step.bias is None or following.bias is None)
        width = values[step.source].width
        if alone and width == values[following.source].width and max(width, values[step.out].width) <= MAX_SUMMED_WIDTH:
            found.add(step.out)
    return frozenset(found)
