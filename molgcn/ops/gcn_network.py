"""Graph convolutions among the programs of `molgcn::layer_network`, and their calls in the form that the kernels made for them read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import NamedTuple, Self

from torch import Tensor

from molgcn.ops.graph import Graph
from molgcn.ops.head_loss import Objective
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import Finish, Gather, Linear, Step, X


@dataclass(frozen=True)
class GcnNetwork:
    r"""The sizes and options of L graph convolutions, K of which have a norm.

    .. math::
        H_{l+1} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\hat A H_l W_l^T + b_l))) \; (+ H_l), \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2}

    Source: Kipf and Welling, ICLR 2017, equation 2.

    Attributes:
        in_channels: The number of columns of the first layer's input, F.
        hidden_channels: The width of every layer, H.
        num_layers: The number of layers, L.
        norm: "batch", "layer" or None.
        residual: Whether a layer's input is added to its output if the widths agree.
        add_self_loops: Whether the identity is part of :math:`\hat A`.
        last_activation: Whether the last layer has norm, relu and dropout too.
        dropout: The probability that an activation is dropped.
        pool: "mean", "sum" or "max" over each molecule's atoms.
        eps: The value that the norm adds to the variance.
        momentum: The momentum of the running statistics; see `torch.nn.BatchNorm1d`.
    """

    in_channels: int
    hidden_channels: int
    num_layers: int
    norm: str | None = None
    residual: bool = False
    add_self_loops: bool = True
    last_activation: bool = False
    dropout: float = 0.0
    pool: str = "mean"
    eps: float = 1e-5
    momentum: float = 0.1

    @property
    def num_norms(self) -> int:
        """The number of layers with a norm, K."""
        return 0 if self.norm is None else self.num_layers - (not self.last_activation)


class _End(NamedTuple):
    """What follows a layer's product, wherever the program has put it, and the value that the layer computes."""

    norm: str | None
    relu: bool
    dropout: int | None
    add: int | None
    out: int


@cache
def gcn_pattern(program: Program) -> GcnNetwork | None:
    """Return the sizes and options of a program of graph convolutions with relu and nothing else; None for any other program."""
    layers = [program.steps[first:end] for first, end in pairwise((0, *program.ends))]
    gathers, ends = [layer[0] for layer in layers], [_end(layer) for layer in layers]
    if program.edge_channels is not None or program.pool == "none" or program.outs != (program.out,) or None in ends:
        return None
    aggr, norms = getattr(gathers[0], "aggr", ""), [*program.norms]
    network = GcnNetwork(
        program.in_channels,
        program.hidden_channels,
        len(layers),
        program.norms[norms[0]] if norms else None,
        residual=any(end is not None and end.add is not None for end in ends),
        add_self_loops=aggr == "gcn_loops",
        last_activation=ends[-1] is not None and ends[-1].relu,
        dropout=program.dropout,
        pool=program.pool,
        eps=program.eps,
        momentum=program.momentum,
    )
    before = (X, *(end.out for end in ends if end is not None))
    expected = [_expected_end(network, program, layer, h) for layer, h in enumerate(before[:-1])]
    sums = [Gather(h, gather.out, aggr) for gather, h in zip(gathers, before, strict=False)]
    names = [*chain.from_iterable((layer[1].weight, layer[1].bias) for layer in layers)]  # type: ignore[union-attr]
    names += [f"{norm}.{name}" for norm in norms for name in ("weight", "bias")]
    fits = aggr in ("gcn", "gcn_loops") and sums == gathers and [end and end[:-1] for end in ends] == expected
    return network if fits and names == [*program.parameters] and len({*program.norms.values()}) < 2 else None


def _end(layer: Sequence[Step]) -> _End | None:
    """Return what follows the product of a layer of a gather and a product; None for any other layer."""
    if len(layer) not in (2, 3) or not isinstance(layer[0], Gather):
        return None
    product, end = layer[1], layer[-1]
    if not isinstance(product, Linear) or product.source != layer[0].out:
        return None
    if len(layer) == 2:
        return _End(None, product.relu, product.dropout, product.add, product.out)
    alone = not product.relu and product.dropout is None and product.add is None
    if not isinstance(end, Finish) or not alone or end.source != product.out or end.activation not in ("", "relu"):
        return None
    return _End(end.norm, end.activation == "relu", end.dropout, end.add, end.out)


def _expected_end(network: GcnNetwork, program: Program, layer: int, h: int) -> tuple[str | None, bool, int | None, int | None]:
    """Return what must follow the product of a layer with the input `h`: all of :class:`_End` but the value."""
    activated = network.last_activation or layer < network.num_layers - 1
    norm = [*program.norms][layer] if activated and layer < len(program.norms) else None
    adds = network.residual and program.values[h].width == network.hidden_channels
    return norm, activated, layer if activated and network.dropout else None, h if adds else None


class Parameters(NamedTuple):
    """The parameters of a network, or their gradients, by kind. Each list is in the order of the layers.

    Attributes:
        weights: L tensors, the first [H, F] and the others [H, H], as `torch.nn.Linear` stores them.
        biases: L tensors [H].
        norm_weights: K tensors [H].
        norm_biases: K tensors [H].
        running_means: K tensors [H] with norm="batch". Empty for other norms and for the backward pass of batch norm in training.
        running_vars: K tensors [H] with norm="batch". Empty for other norms and for the backward pass of batch norm in training.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    norm_weights: Sequence[Tensor] = ()
    norm_biases: Sequence[Tensor] = ()
    running_means: Sequence[Tensor] = ()
    running_vars: Sequence[Tensor] = ()

    @classmethod
    def of(cls, network: GcnNetwork, tensors: Sequence[Tensor], statistics: Sequence[Tensor] = ()) -> Self:
        """Return tensors by kind, given in the order of the program."""
        ends, half = 2 * network.num_layers, len(statistics) // 2
        of_layers, of_norms = tensors[:ends], tensors[ends:]
        return cls(of_layers[::2], of_layers[1::2], of_norms[::2], of_norms[1::2], statistics[:half], statistics[half:])

    @property
    def tensors(self) -> list[Tensor]:
        """All parameters in the order of the program."""
        pairs = chain(zip(self.weights, self.biases, strict=True), zip(self.norm_weights, self.norm_biases, strict=True))
        return [*chain.from_iterable(pairs)]

    @property
    def statistics(self) -> list[Tensor]:
        """All running statistics in the order of the program."""
        return [*self.running_means, *self.running_vars]


class GcnCall(NamedTuple):
    """A call of graph convolutions on a batch.

    Attributes:
        graph: The batch.
        network: The network.
        parameters: The network's parameters and running statistics.
        seed: The key of dropout's random numbers, int64 [1].
        options: The options of this call.
        head: The weight [T, H] and bias [T] of a linear head, or nothing.
        objective: The targets and the loss of the head's predictions, or None.
    """

    graph: Graph
    network: GcnNetwork
    parameters: Parameters
    seed: Tensor
    options: Options = Options()
    head: Sequence[Tensor] = ()
    objective: Objective | None = None

    @staticmethod
    def of(call: LayerNetworkCall) -> GcnCall | None:
        """Return a call in this form, or None if its program is not one of graph convolutions."""
        network = gcn_pattern(call.program)
        if network is None:
            return None
        parameters = Parameters.of(network, call.parameters, call.statistics)
        return GcnCall(call.graph, network, parameters, call.seed, call.options, call.head, call.objective)

    @property
    def batch_statistics(self) -> bool:
        """Whether the norms use statistics of the batch, so that a layer has to wait for all molecules."""
        return self.network.norm == "batch" and self.options.training

    @property
    def dropout_rate(self) -> float:
        """The probability of dropout, 0 in evaluation."""
        return self.network.dropout if self.options.training else 0.0

    @property
    def num_targets(self) -> int:
        """The number of targets, T; 0 without a head."""
        return self.head[0].shape[0] if self.head else 0


def empty_gradients(call: GcnCall) -> tuple[tuple[Tensor, ...], Parameters]:
    """Return uninitialised blocks of memory for the parameters' gradients, and the gradients, which are views of them."""
    x, it = call.graph.x, call.network
    first = x.new_empty(it.hidden_channels, it.in_channels)
    others = x.new_empty(it.num_layers - 1, it.hidden_channels, it.hidden_channels)  # one allocation each is faster
    biases = x.new_empty(it.num_layers, it.hidden_channels)
    of_norms = x.new_empty(it.num_norms, it.hidden_channels), x.new_empty(it.num_norms, it.hidden_channels)
    gradients = Parameters([first, *others.unbind()], biases.unbind(), *(block.unbind() for block in of_norms))
    return (first, others, biases, *of_norms), gradients
