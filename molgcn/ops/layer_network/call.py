"""A network of the family that is called on a batch: the arguments of `molgcn::layer_network`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from molgcn.ops.layer_network.spec import LayerNetworkSpec


class BondGraph(NamedTuple):
    """The molecules of a batch as one graph: N atoms, E directed bonds, B molecules.

    Attributes:
        x: float [N, F], the atoms' rows.
        bonds: float [K, D], rows of distinct bonds, or [E, D], a row of each bond, or None where the network sees no bonds.
        ptr: int32 [B + 1], first atom of each molecule. Rows from `ptr[B]` on are padding.
        rowptr: int32 [N + 1], first bond that points at each atom.
        col: int32 [E], source atom of each bond, sorted by target, then source; both directions of a bond are there equally often.
        code: int32 [E], the bonds' rows among the K distinct ones, or None where each bond has a row of its own.
    """

    x: Tensor
    bonds: Tensor | None
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    code: Tensor | None = None

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.shape[0]

    @property
    def num_bond_rows(self) -> int:
        """K or E, 0 without bonds."""
        return 0 if self.bonds is None else self.bonds.shape[0]


class Options(NamedTuple):
    """What varies from call to call of a network.

    Attributes:
        training: batch statistics and dropout.
        precision: "float32", or "tf32" or "bf16" where the caller allows products of less; a device may compute more precisely.
        save_for_backward: False when no gradient is wanted: nothing is kept.
    """

    training: bool = False
    precision: str = "float32"
    save_for_backward: bool = True


class LayerNetworkCall(NamedTuple):
    """A network that is called on a batch.

    Attributes:
        graph: the batch.
        spec: the network.
        parameters: the tensors of :attr:`LayerNetworkSpec.parameters`, in their order.
        statistics: the tensors of :attr:`LayerNetworkSpec.statistics`, in their order; none for a backward pass with batch statistics.
        seed: int64 [1] on x's device, key of the dropout's random numbers; read only with dropout in training.
        options: of this call.
    """

    graph: BondGraph
    spec: LayerNetworkSpec
    parameters: Sequence[Tensor]
    statistics: Sequence[Tensor]
    seed: Tensor
    options: Options = Options()

    @property
    def batch_statistics(self) -> bool:
        """Whether a norm takes the statistics of the batch."""
        return self.options.training and len(self.spec.batch_norms) > 0

    @property
    def dropout_rate(self) -> float:
        """`dropout`, 0 in evaluation."""
        return self.spec.dropout if self.options.training else 0.0

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The operator's arguments, in the order of its schema."""
        return *self.graph, list(self.parameters), list(self.statistics), self.seed, self.spec.to_string(), *self.options

    @staticmethod
    def of(*arguments: Any) -> LayerNetworkCall:
        """Return the call with these :attr:`arguments`."""
        end = len(BondGraph._fields)
        parameters, statistics, seed, text = arguments[end : end + 4]
        spec = LayerNetworkSpec.from_string(text)
        return LayerNetworkCall(BondGraph(*arguments[:end]), spec, parameters, statistics, seed, Options(*arguments[end + 4 :]))
