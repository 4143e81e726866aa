r"""`molgcn::message_network`: all layers, the pooling and what follows it as one operator, forward and backward.

The operator is functional: running statistics are outputs, the dropout seed is a tensor argument. Each device registers an implementation
of `molgcn::message_network` and `molgcn::message_network_backward`, and how many bytes its forward keeps for its backward
(:func:`register_saved_size`); :mod:`molgcn.ops.message_network_autograd` makes the one the derivative of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.graph import Graph
from molgcn.ops.spec import NetworkSpec, Parameters
from molgcn.ops.transforms import refuse_transforms
from molgcn.strategies import EARLIER

PRECISIONS = ("float32", "tf32", "bf16")


class CallOptions(NamedTuple):
    """What varies from call to call of a network.

    Attributes:
        training: batch statistics and dropout.
        precision: "float32", or "tf32" or "bf16" where the caller allows products of less; a device may compute more precisely.
        strategy: one of :data:`molgcn.strategies.STRATEGIES`, or an earlier name of it.
        save_for_backward: False when no gradient is wanted: nothing is kept.
    """

    training: bool = False
    precision: str = "float32"
    strategy: str = "auto"
    save_for_backward: bool = True

    @property
    def engine(self) -> str:
        """The strategy, by its name of today."""
        return EARLIER.get(self.strategy, self.strategy)


class Epilogue(NamedTuple):
    """What follows the pooling: nothing, a linear head for inference, or a linear head and its loss in training (:func:`fuses_loss`).

    Attributes:
        head: weight [T, H] and bias [T], or none.
        targets: `target`, `mean` and `std` of a :class:`molgcn.ops.head_loss.Objective`, or none.
        loss: the objective's.
        delta: the objective's.
    """

    head: Sequence[Tensor] = ()
    targets: Sequence[Tensor] = ()
    loss: str = "mse"
    delta: float = 1.0

    @property
    def num_targets(self) -> int:
        """T, or 0 without a head."""
        return self.head[0].shape[0] if self.head else 0


_AFTER_GRAPH = len(Graph._fields)  # places among the operator's arguments
_OPTIONS = _AFTER_GRAPH + 4
_EPILOGUE = _OPTIONS + len(CallOptions._fields)


class NetworkCall(NamedTuple):
    """A network that is called on a batch.

    Attributes:
        graph: the batch.
        spec: the network.
        parameters: in the order of the spec.
        seed: int64 [1] on x's device, key of the dropout's random numbers; read only when `training` and `dropout` > 0.
        options: of this call.
        epilogue: what follows the pooling.
    """

    graph: Graph
    spec: NetworkSpec
    parameters: Parameters
    seed: Tensor
    options: CallOptions = CallOptions()
    epilogue: Epilogue = Epilogue()

    @property
    def batch_statistics(self) -> bool:
        """Whether a layer needs statistics of the whole batch before it can go on."""
        return self.spec.norm == "batch" and self.options.training

    @property
    def dropout_rate(self) -> float:
        """`dropout`, 0 in evaluation."""
        return self.spec.dropout if self.options.training else 0.0

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The operator's arguments, in the order of its schema."""
        parameters, (head, targets, loss, delta) = self.parameters, self.epilogue
        lists = parameters.tensors, parameters.statistics
        return *self.graph, *lists, self.seed, self.spec.to_string(), *self.options, list(head), list(targets), loss, delta

    @staticmethod
    def of(*arguments: Any) -> NetworkCall:
        """The inverse of :attr:`arguments`."""
        tensors, statistics, seed, text = arguments[_AFTER_GRAPH:_OPTIONS]
        spec = NetworkSpec.from_string(text)
        return NetworkCall(
            Graph(*arguments[:_AFTER_GRAPH]),
            spec,
            Parameters.of(spec, tensors, statistics),
            seed,
            CallOptions(*arguments[_OPTIONS:_EPILOGUE]),
            Epilogue(*arguments[_EPILOGUE:]),
        )


class Outputs(NamedTuple):
    """What the operator returns.

    Attributes:
        result: pooled features [B, H]; with a head predictions [B, T]; with targets the loss, a scalar, 0 where nothing is known.
        statistics: [2, K, H], running means and variances after this batch, with norm="batch" in training, else [2, 0, H].
        saved: uint8, what backward needs.
        of_loss: with targets float64 [2], sum and number of the terms, and the slopes [B, T] and sums over them that backward needs.
    """

    result: Tensor
    statistics: Tensor
    saved: Tensor
    of_loss: Sequence[Tensor]


ARGUMENTS = (
    "Tensor x, Tensor ptr, Tensor rowptr, Tensor col, Tensor? tile_ptr, Tensor? counts, int tile_nodes, bool large_molecules, "
    "bool leaves_merged, Tensor[] parameters, Tensor[] statistics, Tensor seed, str spec, bool training, str precision, str strategy, "
    "bool save_for_backward, Tensor[] head, Tensor[] targets, str loss, float delta"
)

torch.library.define(
    "molgcn::message_network",
    f"({ARGUMENTS}) -> (Tensor result, Tensor new_statistics, Tensor saved, Tensor[] of_loss)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::message_network_backward",
    f"(Tensor grad_result, Tensor saved, Tensor[] of_loss, bool needs_grad_x, {ARGUMENTS}) -> "
    "(Tensor grad_x, Tensor[] grad_parameters, Tensor[] grad_head)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

Gradients = tuple[Tensor, list[Tensor], list[Tensor]]  # of x, the parameters and the head
_SAVED_BYTES: dict[str, Callable[[NetworkCall], int]] = {}


def register_saved_size(device_type: str, saved_bytes: Callable[[NetworkCall], int]) -> None:
    """Register the size of `saved` on a device, a function of shapes and options only; asked with `save_for_backward` True."""
    _SAVED_BYTES[device_type] = saved_bytes


def message_network(call: NetworkCall) -> Outputs:
    r"""All graph convolutions and the pooling, and what follows it.

    .. math::
        H_{l+1} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\hat A H_l W_l^T + b_l))) \; (+ H_l), \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2},

    without dropout, relu and norm in the last layer unless `last_activation`; then mean, sum or max over each molecule's atoms.
    Source: Kipf and Welling, ICLR 2017, equation 2.

    Args:
        call: see :class:`NetworkCall`; differentiable in x, the parameters and with targets in the head, once.

    Returns:
        See :class:`Outputs`.

    Raises:
        ValueError: for tensors whose shape, dtype or device does not fit, or an option that the device does not have.
        TypeError: for features in a dtype that the CPU does not compute in.
        NotImplementedError: under a transform of torch.func or forward-mode differentiation.
    """
    refuse_transforms()
    if not torch.compiler.is_compiling():  # its autograd kernel, without a turn through the dispatcher
        from molgcn.ops.message_network_autograd import run

        return run(call)
    return Outputs(*torch.ops.molgcn.message_network.default(*call.arguments))


def empty_outputs(call: NetworkCall) -> Outputs:
    """Uninitialised outputs."""
    x, hidden, num_graphs, num_targets = call.graph.x, call.spec.hidden_channels, call.graph.num_graphs, call.epilogue.num_targets
    statistics = x.new_empty(2, call.spec.num_norms if call.batch_statistics else 0, hidden)
    saved = empty_saved(call)
    if not call.epilogue.targets:
        return Outputs(x.new_empty(num_graphs, num_targets if call.epilogue.head else hidden), statistics, saved, [])
    sums, slopes, head_sums = (
        x.new_empty(2, dtype=torch.double),
        x.new_empty(num_graphs, num_targets),
        x.new_empty(num_targets * (hidden + 1)),
    )
    return Outputs(x.new_empty(()), statistics, saved, [sums, slopes, head_sums])


@torch.library.register_fake("molgcn::message_network")
def _fake(*args: Any) -> Outputs:
    from molgcn.ops.message_network_check import check  # it needs this module's definitions

    call = NetworkCall.of(*args)
    check(call)
    return empty_outputs(call)


def empty_saved(call: NetworkCall) -> Tensor:
    """Return uninitialised memory, uint8 [bytes], for what the backward pass needs."""
    saved_bytes = _SAVED_BYTES.get(call.graph.x.device.type)
    size = saved_bytes(call) if saved_bytes is not None and call.options.save_for_backward else 0
    return call.graph.x.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("molgcn::message_network_backward")
def _fake_backward(grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], needs_grad_x: bool, *args: Any) -> Gradients:
    return empty_gradients(NetworkCall.of(*args), needs_grad_x, with_head=len(of_loss) > 0)


def empty_gradients(call: NetworkCall, needs_grad_x: bool, with_head: bool) -> Gradients:
    """Uninitialised gradients in the shapes of the parameters; x's is empty unless wanted."""
    x = call.graph.x
    of_head = [tensor.new_empty(tensor.shape) for tensor in call.epilogue.head] if with_head else []
    grad_x = x.new_empty(x.shape if needs_grad_x else (0, 0))
    return grad_x, [tensor.new_empty(tensor.shape) for tensor in call.parameters.tensors], of_head
