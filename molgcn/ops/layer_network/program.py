"""A network as steps, which is all that `molgcn::layer_network` knows of it, and the text in which the operator takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from molgcn.ops.layer_network.program_check import check_program
from molgcn.ops.layer_network.steps import KINDS, Attend, Finish, Gather, Linear, Step, Value, values_read

NORMS = (None, "layer", "batch")  # kernels know norms and poolings by these numbers
POOLS = ("mean", "sum", "max", "none")
_HEADING = "molgcn.layer_network/4"  # the kind of text and its version


@dataclass(frozen=True, eq=False)
class Program:
    """A network's forward pass up to the pooling, its parameters by their names in a state dict, and the pooling.

    Programs are equal if they are the same object. :meth:`from_text` returns one object for each text.

    Attributes:
        values: The values that the steps read and compute, by number. The first two are the network's inputs.
        steps: The steps in the order of the network.
        ends: The number of steps up to the end of each layer.
        parameters: The parameters' shapes by name, in the order of the operator's arguments.
            A name ends in the columns of its matrix, as in "W_i.weight[0:133]", where steps multiply by some of them.
        norms: The kind of every norm by name, "batch" or "layer", in the order of the network.
        pool: "mean", "sum" or "max" over each molecule's atoms. Atoms that are equally largest share the gradient of "max" equally. With
            "none" the result has a row for each atom.
        dropout: The probability that a step with dropout drops a number.
        eps: The value that the norms add to the variance.
        momentum: The momentum of the running statistics; see `torch.nn.BatchNorm1d`.
        outs: The values that are pooled, whose pooled rows stand side by side in the result. The last step's value comes last.
        out: The last step's value.
        in_channels: The number of columns of the atoms' rows, F.
        hidden_channels: The number of columns of each pooled value and of every norm, H.
        pooled_channels: The number of columns of the result: H for each pooled value.
        edge_channels: The number of columns of the bonds' rows, D, or None if no step reads them.
        batch_norms: The names of the batch norms, in the order of the network.
        statistics: The running statistics' shapes by name, in the operator's order: all means, then all variances.
        counters: The names of the batch norms' counters of batches.
        members: The names of the parameters in a state dict, in the order of `parameters`, without the columns.
        columns: The first and the end of the columns of each parameter; None for the whole.
        drops: Whether a step drops numbers or weights. Such a program is for training.
        text: The text of the program.

    Raises:
        ValueError: If a step reads what is not there, or a shape does not fit. The message names the step.
    """

    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    ends: tuple[int, ...]
    parameters: Mapping[str, tuple[int, ...]]
    norms: Mapping[str, str]
    pool: str
    dropout: float
    eps: float
    momentum: float
    outs: tuple[int, ...]
    # Attributes in place of properties: torch.compile reads them off a constant.
    out: int = field(init=False)
    in_channels: int = field(init=False)
    hidden_channels: int = field(init=False)
    pooled_channels: int = field(init=False)
    edge_channels: int | None = field(init=False)
    batch_norms: tuple[str, ...] = field(init=False)
    statistics: Mapping[str, tuple[int, ...]] = field(init=False)
    counters: tuple[str, ...] = field(init=False)
    members: tuple[str, ...] = field(init=False)
    columns: tuple[tuple[int, int] | None, ...] = field(init=False)
    drops: bool = field(init=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        check_program(self.values, self.steps, self.ends, self.parameters, self.norms, self.outs)
        if self.pool not in POOLS:
            raise ValueError(f"pool={self.pool} is unknown. Expected one of {', '.join(POOLS)}.")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout}, expected a probability of at least 0 and below 1")
        out, batch_norms = self.steps[-1].out, tuple(name for name, kind in self.norms.items() if kind == "batch")
        hidden = self.values[out].width
        statistics = {f"{norm}.{kind}": (hidden,) for kind in ("running_mean", "running_var") for norm in batch_norms}
        derived = {
            "out": out,
            "in_channels": self.values[0].width,
            "hidden_channels": hidden,
            "pooled_channels": hidden * len(self.outs),
            "edge_channels": self.values[1].width or None,
            "batch_norms": batch_norms,
            "statistics": statistics,
            "counters": tuple(f"{norm}.num_batches_tracked" for norm in batch_norms),
            "members": tuple(name.partition("[")[0] for name in self.parameters),
            "columns": tuple(_columns(name) for name in self.parameters),
            "drops": self.dropout > 0 or any(isinstance(step, Attend) and step.rate > 0 for step in self.steps),
            "text": self._text(),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _text(self) -> str:
        steps = [[type(step).__name__, *step] for step in self.steps]
        rest = [self.ends, self.parameters, self.norms, self.pool, self.dropout, self.eps, self.momentum, self.outs]
        return json.dumps([_HEADING, self.values, steps, *rest], separators=(",", ":"))

    @cached_property
    def has_edges(self) -> bool:
        """Whether some values have a row for each directed bond."""
        return any(value.rows == "edges" for value in self.values)

    @cached_property
    def attends(self) -> bool:
        """Whether some steps attend."""
        return any(isinstance(step, Attend) for step in self.steps)

    @staticmethod
    @cache
    def from_text(text: str) -> Program:
        """Return the program of a text, the same object for the same text.

        Raises:
            ValueError: If the text is of another version or is not a program.
        """
        try:
            heading, values, steps, ends, parameters, norms, *rest, outs = json.loads(text)
            if heading != _HEADING:
                raise ValueError(f"expected {_HEADING}, got {heading}")
            shapes = {name: tuple(shape) for name, shape in parameters.items()}
            made = tuple(KINDS[kind](*fields) for kind, *fields in steps)
            given: list[Any] = [tuple(Value(*value) for value in values), made, tuple(ends), shapes, norms, *rest, tuple(outs)]
            return Program(*given)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not the text of a network's program: {error}") from error


def _columns(name: str) -> tuple[int, int] | None:
    """Return the first and the end of the columns that the name of a parameter ends in, or None."""
    first, colon, end = name.partition("[")[2].removesuffix("]").partition(":")
    return (int(first), int(end)) if colon else None


@cache
def masked_values(program: Program) -> frozenset[int]:
    """Return the products that a relu without norm at the end of a layer reads. Nothing else reads them."""
    pairs = ((step, end) for step, end in pairwise(program.steps) if isinstance(step, Linear) and isinstance(end, Finish))
    return frozenset(step.out for step, end in pairs if end.activation == "relu" and ends_product(step, end)) - {*program.outs}


def ends_product(step: Linear, end: Finish) -> bool:
    """Return whether the end of a layer can follow a product in one launch on CUDA: of the two, one at most adds something."""
    return end.source == step.out and end.norm is None and not step.relu and (step.add is None or end.add is None)


@cache
def first_products(program: Program) -> Mapping[Finish, Linear]:
    """Return the product that reads the end of a layer with a batch norm before all other steps do, for each end that has one.

    On CUDA it may take its rows through that end. Steps on other rows may come between the two.
    """
    found = dict[Finish, Linear]()
    for number, step in enumerate(program.steps):
        if isinstance(step, Finish) and step.norm in program.batch_norms:
            reader = next((other for other in program.steps[number + 1 :] if step.out in values_read(other)), None)
            if isinstance(reader, Linear) and reader.source == step.out:
                found[step] = reader
    return found


@cache
def signed_values(program: Program) -> frozenset[int]:
    """Return the products whose signs the kernels keep as bits, for the gradients of relu: those before and after a relu."""
    return masked_values(program).union(step.out for step in program.steps if isinstance(step, Linear) and step.relu)


@cache
def has_other_activations(program: Program) -> bool:
    """Return whether a network has activations besides relu, for which kernels have more code."""
    return any(isinstance(step, Finish) and step.activation not in ("", "relu") for step in program.steps)


@cache
def biases_without_effect(program: Program, batch_norms: Sequence[str]) -> frozenset[str]:
    """Return the names of the biases that a norm with the statistics of the batch subtracts again with the mean.

    Args:
        program: The forward pass.
        batch_norms: The names of these norms.
    """
    read = [*program.outs, *(value for step in program.steps for value in values_read(step))]
    shifted: set[int | None] = {step.source for step in program.steps if isinstance(step, Finish) and step.norm in batch_norms}
    names = set[str | None]()
    for step in reversed(program.steps):
        linear = isinstance(step, (Gather, Linear, Attend)) and not getattr(step, "relu", False)
        if linear and step.out in shifted and read.count(step.out) == 1:
            names.add(getattr(step, "bias", None))
            shifted.add(getattr(step, "add", None))
    return frozenset(name for name in names if name is not None)


@cache
def fixed_eps(program: Program) -> frozenset[str]:
    """Return the names of the eps that are not learnt."""
    return frozenset(step.eps for step in program.steps if isinstance(step, Gather) and step.eps is not None and not step.train_eps)
