"""The arguments of `molgcn::layer_network`: a batch, a network and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from molgcn.ops.encode import Encoded, EncodeInputs
from molgcn.ops.graph import Graph
from molgcn.ops.head_loss import Objective
from molgcn.ops.layer_network.program import Program

PRECISIONS = ("float32", "tf32", "bf16")


class Options(NamedTuple):
    """The options of a call, which may differ between calls of the same network.

    Attributes:
        training: Whether batch norms use the statistics of the batch.
        precision: The lowest precision that the caller allows for products: "float32", "tf32" or "bf16". A device may compute more
            precisely.
        save_for_backward: Whether forward keeps what backward needs. False if no gradient is wanted.
        recompute: Whether forward keeps only the layers' inputs on CUDA, and backward computes a layer's other values again. The CPU keeps
            and computes the same either way.
        strategy: One of :data:`molgcn.config.strategies.STRATEGIES`, which says by which kernels graph convolutions are computed.
    """

    training: bool = False
    precision: str = "float32"
    save_for_backward: bool = True
    recompute: bool = False
    strategy: str = "auto"


class LayerNetworkCall(NamedTuple):
    """A call of a network on a batch.

    Attributes:
        graph: The batch.
        program: The network.
        parameters: The tensors of :attr:`Program.parameters`, in their order.
        statistics: The tensors of :attr:`Program.statistics`, in their order. Empty for a backward pass with batch statistics.
        seed: The key of dropout's random numbers, int64 [1] on x's device. It is read only with dropout in training.
        options: The options of this call.
        encoders: What maps x and what maps the bonds' rows before the first step, or None for rows that are taken as they are.
        head: The weight and the bias of each linear map that follows the pooling, with a relu between each two; empty without a head.
        objective: The targets and the loss of the head's result, which is returned in its place; None without a loss.
        counters: The int64 scalars that count the batches of the layers' norms, and then of the atoms' encoder's, where these use the
            statistics of the batch. With them an implementation may write the running statistics in place and count the batch. Empty where
            the caller does that.
    """

    graph: Graph
    program: Program
    parameters: Sequence[Tensor]
    statistics: Sequence[Tensor]
    seed: Tensor
    options: Options = Options()
    encoders: tuple[EncodeInputs | None, EncodeInputs | None] = (None, None)
    head: Sequence[Tensor] = ()
    objective: Objective | None = None
    counters: Sequence[Tensor] = ()

    def encoded(self, states: Sequence[Encoded | None]) -> LayerNetworkCall:
        """Return the call with what its encoders have computed of its rows."""
        x, bonds = (rows if found is None else found.states for rows, found in zip(self.graph[:2], states, strict=True))
        assert x is not None
        return self._replace(graph=self.graph._replace(x=x, bonds=bonds))

    @property
    def for_backward(self) -> LayerNetworkCall:
        """What backward reads: no objective, and nothing of the norms that changes before it."""
        first, second = (None if inputs is None else inputs.for_backward for inputs in self.encoders)
        statistics = [] if self.batch_statistics else self.statistics
        return self._replace(statistics=statistics, encoders=(first, second), objective=None, counters=())

    @property
    def learnt(self) -> list[Tensor | None]:
        """The parameters of encoders, with None for those that one does not have, of the layers and of the head."""
        of_encoders = (parameter for inputs in self.encoders if inputs is not None for parameter in inputs.parameters)
        return [*of_encoders, *self.parameters, *self.head]

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors but the seed and rows that an encoder maps, which it has itself."""
        targets = () if self.objective is None else self.objective[:3]
        (x, bonds, *others), (of_atoms, of_bonds) = self.graph.tensors, self.encoders
        rows = None if of_atoms is not None else x, None if of_bonds is not None else bonds
        of_encoders = *(of_atoms.tensors if of_atoms is not None else ()), *(of_bonds.tensors if of_bonds is not None else ())
        return *rows, *others, *of_encoders, *self.parameters, *self.statistics, *self.head, *self.counters, *targets

    @property
    def widths(self) -> list[int]:
        """The numbers of columns of the pooled rows and of the results of the head's maps."""
        return [self.program.pooled_channels, *(weight.shape[0] for weight in self.head[::2])]

    @property
    def batch_statistics(self) -> bool:
        """Whether a norm uses the statistics of the batch."""
        return self.options.training and len(self.program.batch_norms) > 0

    @property
    def num_pooled(self) -> int:
        """The number of rows of the result: molecules, or atoms where the program has pool="none"."""
        return self.graph.num_nodes if self.program.pool == "none" else self.graph.num_graphs

    @property
    def norms_of_batch(self) -> tuple[str, ...]:
        """The names of the norms that use the statistics of the batch."""
        return self.program.batch_norms if self.options.training else ()

    @property
    def num_counted(self) -> int:
        """The number of norms, of layers and of encoders, that use the statistics of the batch."""
        return len(self.norms_of_batch) + sum(inputs is not None and inputs.training for inputs in self.encoders)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The operator's arguments, in the order of its schema."""
        return *self.graph, list(self.parameters), list(self.statistics), self.seed, self.program.text, *self.options

    @staticmethod
    def of(*arguments: Any) -> LayerNetworkCall:
        """Return the call with these :attr:`arguments`."""
        end = len(Graph._fields)
        parameters, statistics, seed, text = arguments[end : end + 4]
        program = Program.from_text(text)
        return LayerNetworkCall(Graph(*arguments[:end]), program, parameters, statistics, seed, Options(*arguments[end + 4 :]))
