"""Check that the steps of a program fit together, since kernels read and write by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from molgcn.ops.layer_network.steps import (
    ACTIVATIONS,
    AGGREGATIONS,
    BONDS,
    Attend,
    EdgeStep,
    Expand,
    Finish,
    Gate,
    Gather,
    Linear,
    Spread,
    Step,
    SumIncoming,
    Value,
    X,
    values_made,
    values_read,
)

NORMS = ("batch", "layer")


def check_program(
    values: Sequence[Value],
    steps: Sequence[Step],
    ends: Sequence[int],
    parameters: Mapping[str, tuple[int, ...]],
    norms: Mapping[str, str],
    outs: Sequence[int],
) -> None:
    """Check the steps of a network; :class:`molgcn.ops.layer_network.program.Program` describes the arguments.

    Raises:
        ValueError: If a step reads what is not there, or a shape does not fit. The message names the step.
    """
    if not steps or list(ends) != sorted(ends) or not ends or ends[-1] != len(steps):
        raise ValueError(f"the layers end after {list(ends)} of {len(steps)} steps: expected ascending numbers, and all steps at the end")
    if [value.rows for value in values[:2]] != ["atoms", "bonds"] or not all(value.rows in ("atoms", "bonds", "edges") for value in values):
        raise ValueError("expected the atoms' and the bonds' rows as the first values, and rows of atoms, bonds or edges as the others")
    if not all(type(value.width) is int and value.width > (place != BONDS) - 1 for place, value in enumerate(values)):
        raise ValueError(f"expected positive numbers of columns, got {[value.width for value in values]}")
    known = {X, BONDS} if values[BONDS].width else {X}
    hidden, normed = values[steps[-1].out].width, set[str]()
    for number, step in enumerate(steps):
        if missing := [value for value in values_read(step) if value not in known]:
            raise ValueError(f"step {number}, {step}, reads value {missing[0]}, which no step before it computes")
        for value in values_made(step):
            if value in known or not 0 <= value < len(values):
                raise ValueError(f"step {number}, {step}, computes value {value}, which is computed before it or not listed")
            known.add(value)
        for name, shape in _shapes(step, values):
            if parameters.get(name) != shape:
                raise ValueError(f"step {number}, {step}: expected {name} of shape {list(shape)}, got {parameters.get(name)}")
        if problem := _problem(step, values, norms, hidden):
            raise ValueError(f"step {number}, {step}: {problem}")
        if (norm := getattr(step, "norm", None)) in normed:
            raise ValueError(f"step {number}, {step}: an earlier step has the same norm, whose statistics are of one value")
        normed |= set() if norm is None else {norm}
    kinds = [values[out] if out in known else None for out in outs]
    if not outs or outs[-1] != steps[-1].out or len({*outs}) < len(outs) or {*kinds} != {Value("atoms", hidden)}:
        raise ValueError(f"the values {list(outs)} are pooled: expected different ones of atoms and {hidden} columns, the last step's last")


def _shapes(step: Step, values: Sequence[Value]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the parameters that a step reads."""
    width = values[step.out].width
    if isinstance(step, Linear):
        yield step.weight, (width, values[step.source].width)
    if isinstance(step, Gather) and step.eps is not None:
        yield step.eps, (1,)
    if isinstance(step, Attend):
        vectors = [name for name in (step.att, step.att_target, step.att_bonds) if name is not None]
        yield from ((name, (1, step.heads, values[step.source].width // max(1, step.heads))) for name in vectors)
    if isinstance(step, Gather | Linear | Attend) and step.bias is not None:
        yield step.bias, (width,)
    if isinstance(step, Finish) and step.norm is not None:
        yield from ((f"{step.norm}.{name}", (width,)) for name in ("weight", "bias"))


def _problem(step: Step, values: Sequence[Value], norms: Mapping[str, str], hidden: int) -> str | None:
    """Return what is wrong with the values of a step, or None."""
    source, out, add = values[step.source], values[step.out], getattr(step, "add", None)
    if isinstance(step, Expand | Spread | EdgeStep):
        return _problem_of_edges(step, values)
    if isinstance(step, Attend):
        return _problem_of_attention(step, values)
    if out.rows != source.rows or (not isinstance(step, Linear) and out.width != source.width):
        return f"it computes {out} from {source}"
    if add is not None and values[add] != out:
        return f"it adds {values[add]} to {out}"
    if isinstance(step, Linear) and add is not None and step.relu:
        return "a product with relu adds nothing"
    if isinstance(step, Gather):
        if source.rows != "atoms" or step.aggr not in AGGREGATIONS:
            return f"it gathers {source} by {step.aggr}: expected atoms and one of {', '.join(AGGREGATIONS)}"
        if step.bonds is not None and values[step.bonds] != Value("bonds", source.width):
            return f"it adds {values[step.bonds]} to {source}"
    if isinstance(step, Finish) and step.activation not in ACTIVATIONS:
        return f"its activation is {step.activation}: expected one of {', '.join(ACTIVATIONS[1:])}"
    if isinstance(step, Finish) and step.norm is not None:
        if norms.get(step.norm) not in NORMS:
            return f"its norm is {norms.get(step.norm)}: expected one of {', '.join(NORMS)}"
        if source.rows == "bonds" or source.width != hidden:
            return f"it normalises {source}: expected atoms or edges in the width of the pooled value, {hidden}"
    if isinstance(step, Gate) and (source.rows != "atoms" or values[step.gates] != Value("edges", source.width)):
        return f"it computes {out} from {source} and gates {values[step.gates]}"
    return None


def _problem_of_edges(step: Expand | Spread | EdgeStep, values: Sequence[Value]) -> str | None:
    """Return what is wrong with the values of a step that reads or computes rows of edges, or None."""
    width = values[step.out].width
    read = Value("atoms" if isinstance(step, Expand) else "bonds" if isinstance(step, Spread) else "edges", width)
    made = Value("atoms" if isinstance(step, SumIncoming) else "edges", width)
    if (values[step.source], values[step.out]) != (read, made):
        return f"it computes {values[step.out]} from {values[step.source]}"
    if isinstance(step, Expand) and step.bonds is not None and (values[step.bonds].rows == "atoms" or values[step.bonds].width != width):
        return f"it adds {values[step.bonds]} to {values[step.out]}"
    if isinstance(step, Expand) and step.target is not None and values[step.target] != read:
        return f"it adds {values[step.target]} to {values[step.out]}"
    return None


def _problem_of_attention(step: Attend, values: Sequence[Value]) -> str | None:
    """Return what is wrong with the values and numbers of a step that attends, or None."""
    source, heads = values[step.source], step.heads
    if heads < 1 or source.rows != "atoms" or source.width % heads:
        return f"it attends to {source} with {heads} heads: expected atoms, and as many columns for each head"
    if values[step.out] != Value("atoms", source.width if step.concat else source.width // heads):
        return f"it computes {values[step.out]} from {source} with {heads} heads, concat={step.concat}"
    if values[step.softmax] != Value("atoms", 2 * heads):
        return f"its softmax is {values[step.softmax]}: expected two numbers for each of {heads} heads"
    if step.target is not None and values[step.target] != source:
        return f"it adds {values[step.target]} to {source}"
    if step.bonds is not None and values[step.bonds] != Value("bonds", source.width):
        return f"it adds {values[step.bonds]} to {source}"
    expected = (step.target is None, step.target is None and step.bonds is not None)
    if (step.att_target is not None, step.att_bonds is not None) != expected:
        return "it needs a vector for each part of its scores, and a single one with a target"
    if not 0 <= step.rate < 1 or (step.rate > 0) != (step.dropout is not None):
        return f"it drops weights with probability {step.rate} as dropout {step.dropout}"
    return None
