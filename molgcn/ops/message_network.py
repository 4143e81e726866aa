r"""`molgcn::message_network`: all layers, the pooling and an optional head and loss as one operator, forward and backward.

The operator is functional: running statistics are outputs, and the dropout seed is a tensor argument. Each device registers an
implementation of `molgcn::message_network` and `molgcn::message_network_backward`, and the number of bytes that its forward keeps for
backward (:func:`register_saved_size`). :mod:`molgcn.ops.message_network_autograd` registers the second as the derivative of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.fake import register_fake
from molgcn.ops.graph import GRAPH_SCHEMA, Graph
from molgcn.ops.spec import NetworkSpec, Parameters
from molgcn.ops.transforms import refuse_transforms

PRECISIONS = ("float32", "tf32", "bf16")


class CallOptions(NamedTuple):
    """The options of a call, which may differ between calls of the same network.

    Attributes:
        training: Whether batch statistics and dropout are used.
        precision: The lowest precision that the caller allows for products: "float32", "tf32" or "bf16". A device may compute more
            precisely.
        strategy: One of :data:`molgcn.config.strategies.STRATEGIES`.
        save_for_backward: Whether forward keeps what backward needs. False if no gradient is wanted.
    """

    training: bool = False
    precision: str = "float32"
    strategy: str = "auto"
    save_for_backward: bool = True


class Epilogue(NamedTuple):
    """What follows the pooling: nothing, a linear head for inference, or a linear head and its loss in training.

    Only some calls on CUDA can have a loss (:func:`molgcn.ops.message_network_cuda.fuses_loss`).

    Attributes:
        head: The head's weight [T, H] and bias [T]; empty without a head.
        targets: The `target`, `mean` and `std` of a :class:`molgcn.ops.head_loss.Objective`; empty without a loss.
        loss: The `loss` of the objective.
        delta: The `delta` of the objective.
    """

    head: Sequence[Tensor] = ()
    targets: Sequence[Tensor] = ()
    loss: str = "mse"
    delta: float = 1.0

    @property
    def num_targets(self) -> int:
        """The number of targets, T; 0 without a head."""
        return self.head[0].shape[0] if self.head else 0


_AFTER_GRAPH = len(Graph._fields)  # these are indices among the operator's arguments
_OPTIONS = _AFTER_GRAPH + 4
_EPILOGUE = _OPTIONS + len(CallOptions._fields)


class NetworkCall(NamedTuple):
    """A call of a network on a batch.

    Attributes:
        graph: The batch.
        spec: The network.
        parameters: The network's parameters and running statistics.
        seed: The key of dropout's random numbers, int64 [1] on x's device. It is read only in training with `dropout` > 0.
        options: The options of this call.
        epilogue: What follows the pooling.
    """

    graph: Graph
    spec: NetworkSpec
    parameters: Parameters
    seed: Tensor
    options: CallOptions = CallOptions()
    epilogue: Epilogue = Epilogue()

    @property
    def batch_statistics(self) -> bool:
        """Whether the norms use statistics of the batch, so that a layer has to wait for all molecules."""
        return self.spec.norm == "batch" and self.options.training

    @property
    def dropout_rate(self) -> float:
        """The probability of dropout, 0 in evaluation."""
        return self.spec.dropout if self.options.training else 0.0

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The operator's arguments, in the order of its schema."""
        parameters, (head, targets, loss, delta) = self.parameters, self.epilogue
        lists = parameters.tensors, parameters.statistics
        return *self.graph, *lists, self.seed, self.spec.to_string(), *self.options, list(head), list(targets), loss, delta

    @staticmethod
    def of(*arguments: Any) -> NetworkCall:
        """Return the call with these :attr:`arguments`."""
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
    """The outputs of the operator.

    Attributes:
        result: The pooled features [B, H]. With a head, the predictions [B, T]. With targets, the scalar loss; 0 if no target is known.
        statistics: The running means and variances after this batch, [2, K, H], with norm="batch" in training; otherwise [2, 0, H].
        saved: What backward needs, uint8.
        of_loss: Empty without targets. With targets, three tensors: the sum and the number of the loss's terms, float64 [2]; the
            derivative of each term [B, T]; and the sums over molecules of these derivatives that backward needs [T H + T].
    """

    result: Tensor
    statistics: Tensor
    saved: Tensor
    of_loss: Sequence[Tensor]


ARGUMENTS = (
    f"{GRAPH_SCHEMA}, Tensor[] parameters, Tensor[] statistics, Tensor seed, str spec, bool training, str precision, str strategy, "
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

Gradients = tuple[Tensor, list[Tensor], list[Tensor]]  # gradients of x, of the parameters and of the head
_SAVED_BYTES: dict[str, Callable[[NetworkCall], int]] = {}


def register_saved_size(device_type: str, saved_bytes: Callable[[NetworkCall], int]) -> None:
    """Register the function that gives the size of `saved` on a type of device.

    Args:
        device_type: The type of device, such as "cuda".
        saved_bytes: Returns the number of bytes for a call with `save_for_backward`. It depends on shapes and options only.
    """
    _SAVED_BYTES[device_type] = saved_bytes


def message_network(call: NetworkCall) -> Outputs:
    r"""Compute all graph convolutions, the pooling, and the head and loss of the call's epilogue.

    .. math::
        H_{l+1} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\hat A H_l W_l^T + b_l))) \; (+ H_l), \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2}

    The last layer has no norm, relu and dropout unless `last_activation`. The pooling takes the mean, sum or max over each molecule's
    atoms. Source: Kipf and Welling, ICLR 2017, equation 2.

    Args:
        call: The network and the batch; see :class:`NetworkCall`. The result is differentiable once in x, in the parameters, and with
            targets also in the head.

    Returns:
        The outputs; see :class:`Outputs`.

    Raises:
        ValueError: If a tensor's shape, dtype or device does not fit, or the device does not have an option.
        TypeError: If the CPU does not compute in the dtype of x.
        UserError: If the strategy cannot run the network on CUDA.
        NotImplementedError: Under a transform of torch.func or forward-mode differentiation.
    """
    refuse_transforms()
    if not torch.compiler.is_compiling():  # call the autograd implementation directly, which saves a pass through the dispatcher
        from molgcn.ops.message_network_autograd import run

        return run(call)
    return Outputs(*torch.ops.molgcn.message_network.default(*call.arguments))


def empty_outputs(call: NetworkCall) -> Outputs:
    """Return uninitialised outputs of a call."""
    x, hidden, num_graphs, num_targets = call.graph.x, call.spec.hidden_channels, call.graph.num_graphs, call.epilogue.num_targets
    statistics = x.new_empty(2, call.spec.num_norms if call.batch_statistics else 0, hidden)
    saved = empty_saved(call)
    if not call.epilogue.targets:
        return Outputs(x.new_empty(num_graphs, num_targets if call.epilogue.head else hidden), statistics, saved, [])
    sums, derivatives, head_sums = (
        x.new_empty(2, dtype=torch.double),
        x.new_empty(num_graphs, num_targets),
        x.new_empty(num_targets * (hidden + 1)),
    )
    return Outputs(x.new_empty(()), statistics, saved, [sums, derivatives, head_sums])


@register_fake("molgcn::message_network")
def _fake(*args: Any) -> Outputs:
    from molgcn.ops.message_network_check import check  # imported late, since it imports this module

    call = NetworkCall.of(*args)
    check(call)
    return empty_outputs(call)


def empty_saved(call: NetworkCall) -> Tensor:
    """Return uninitialised memory, uint8 [bytes], for what the backward pass needs."""
    saved_bytes = _SAVED_BYTES.get(call.graph.x.device.type)
    size = saved_bytes(call) if saved_bytes is not None and call.options.save_for_backward else 0
    return call.graph.x.new_empty(size, dtype=torch.uint8)


@register_fake("molgcn::message_network_backward")
def _fake_backward(grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], needs_grad_x: bool, *args: Any) -> Gradients:
    return empty_gradients(NetworkCall.of(*args), needs_grad_x, with_head=len(of_loss) > 0)


def empty_gradients(call: NetworkCall, needs_grad_x: bool, with_head: bool) -> Gradients:
    """Return uninitialised gradients of x, of the parameters and of the head. Those of x and of the head are empty if not wanted."""
    x = call.graph.x
    of_head = [tensor.new_empty(tensor.shape) for tensor in call.epilogue.head] if with_head else []
    _, of_parameters = empty_parameter_gradients(call)
    return x.new_empty(x.shape if needs_grad_x else (0, 0)), of_parameters, of_head


def empty_parameter_gradients(call: NetworkCall) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """Return uninitialised blocks of memory for the parameters' gradients, and the gradients, which are views of them."""
    x, hidden, layers, norms = call.graph.x, call.spec.hidden_channels, call.spec.num_layers, call.spec.num_norms
    first = x.new_empty(hidden, call.spec.in_channels)
    others, biases = x.new_empty(layers - 1, hidden, hidden), x.new_empty(layers, hidden)  # one allocation each is faster
    norm_weights, norm_biases = x.new_empty(norms, hidden), x.new_empty(norms, hidden)
    gradients = [first, *others.unbind(), *biases.unbind(), *norm_weights.unbind(), *norm_biases.unbind()]
    return (first, others, biases, norm_weights, norm_biases), gradients
