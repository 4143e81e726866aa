r"""`molgcn::gcn_stack`: all layers of a GCN and the pooling as one operator, forward and backward.

The operator is functional: running statistics are outputs, the dropout seed is a tensor argument. Each device registers an implementation
of `molgcn::gcn_stack` and `molgcn::gcn_stack_backward`, and how many bytes its forward keeps for its backward
(:func:`register_saved_size`); :mod:`molgcn.ops.gcn_stack_autograd` makes the one the derivative of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.transforms import refuse_transforms

POOLS = ("mean", "sum", "max")
PRECISIONS = ("float32", "tf32", "bf16")


class StackInputs(NamedTuple):
    r"""Arguments of :func:`gcn_stack`, in the order of its schema; N atoms, E bonds, B molecules, L layers, K norms.

    Attributes:
        x: float [N, F], input of the first layer.
        ptr: int32 [B + 1], first atom of each molecule.
        rowptr: int32 [N + 1], first bond that points at each atom.
        col: int32 [E], source atom of each bond, counted through the batch, sorted by target, then source; both directions of a bond
            present equally often, so that the adjacency is symmetric (but see `folded`).
        tile_ptr: int32 [tiles + 1], first molecule of each tile, or None; an optional hint for CUDA, as `tile_nodes`.
        weights: L tensors [H, F] (first) and [H, H], as `torch.nn.Linear` stores them.
        biases: L tensors [H].
        norm_weights: K tensors [H]; K = L - 1, or L with `last_activation`; empty without norm. Likewise
        norm_biases: K tensors [H],
        running_means: K tensors [H] with norm="batch", else empty; empty too for the backward of batch norm in training; likewise
        running_vars: K tensors [H].
        seed: int64 [1] on x's device, key of the dropout's random numbers; read only when `training` and `dropout` > 0.
        counts: of a padded batch: int32 [3 or more], molecules, atoms and bonds in use, as `GraphBatch.counts`; None where the arrays are
            full.
        pool: "mean", "sum" or "max" over each molecule's atoms; of equal largest atoms each takes an equal share of the gradient.
        norm: "batch", "layer" or None.
        residual: add a layer's input to its output where the widths agree.
        add_self_loops: as PyG's GCNConv.
        last_activation: the last layer has norm, relu and dropout too.
        dropout: probability of a zero.
        eps: of the norm.
        momentum: of the running statistics, as `torch.nn.BatchNorm1d`.
        training: batch statistics and dropout.
        precision: "float32", or "tf32" or "bf16" where the caller allows products of less; a device may compute more precisely.
        strategy: "auto", "stack" or "vertex".
        save_for_backward: False when no gradient is wanted: nothing is kept.
        tile_nodes: most atoms of a tile of several molecules.
        large_molecules: False promises that no molecule and no tile has more than `tile_nodes` atoms: CUDA kernels then take half as long
            to compile. What breaks the promise may have NaN as its result and as its gradient; the rest and the weights do without it.
        folded: a row whose only bond goes to another row stands for as many atoms, at most 255, as that one lists it
            (:mod:`molgcn.data.merge_leaves`); its gradient is the sum of theirs. On CUDA with strategy "stack", without dropout.
    """

    x: Tensor
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    tile_ptr: Tensor | None
    weights: list[Tensor]
    biases: list[Tensor]
    norm_weights: list[Tensor]
    norm_biases: list[Tensor]
    running_means: list[Tensor]
    running_vars: list[Tensor]
    seed: Tensor
    counts: Tensor | None = None
    pool: str = "mean"
    norm: str | None = None
    residual: bool = False
    add_self_loops: bool = True
    last_activation: bool = False
    dropout: float = 0.0
    eps: float = 1e-5
    momentum: float = 0.1
    training: bool = False
    precision: str = "float32"
    strategy: str = "auto"
    save_for_backward: bool = True
    tile_nodes: int = 64
    large_molecules: bool = True
    folded: bool = False

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.ptr.shape[0] - 1

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.weights)

    @property
    def num_norms(self) -> int:
        """K."""
        return len(self.norm_weights)

    @property
    def hidden_channels(self) -> int:
        """H."""
        return self.weights[0].shape[0]

    @property
    def batch_statistics(self) -> bool:
        """Whether a layer needs statistics of the whole batch before it can go on."""
        return self.norm == "batch" and self.training

    @property
    def dropout_rate(self) -> float:
        """`dropout`, 0 in evaluation."""
        return self.dropout if self.training else 0.0


ARGUMENTS = (
    "Tensor x, Tensor ptr, Tensor rowptr, Tensor col, Tensor? tile_ptr, Tensor[] weights, Tensor[] biases, Tensor[] norm_weights, "
    "Tensor[] norm_biases, Tensor[] running_means, Tensor[] running_vars, Tensor seed, Tensor? counts, str pool, str? norm, "
    "bool residual, bool add_self_loops, bool last_activation, float dropout, float eps, float momentum, bool training, str precision, "
    "str strategy, bool save_for_backward, int tile_nodes, bool large_molecules, bool folded=False"
)

torch.library.define(
    "molgcn::gcn_stack",
    f"({ARGUMENTS}) -> (Tensor pooled, Tensor new_running_means, Tensor new_running_vars, Tensor saved)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::gcn_stack_backward",
    f"(Tensor grad_pooled, Tensor saved, bool needs_grad_x, {ARGUMENTS}) -> "
    "(Tensor grad_x, Tensor[] grad_weights, Tensor[] grad_biases, Tensor[] grad_norm_weights, Tensor[] grad_norm_biases)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

_SAVED_BYTES: dict[str, Callable[[StackInputs], int]] = {}


def register_saved_size(device_type: str, saved_bytes: Callable[[StackInputs], int]) -> None:
    """Register the size of `saved` on a device, a function of shapes and options only; asked with `save_for_backward` True."""
    _SAVED_BYTES[device_type] = saved_bytes


def gcn_stack(inputs: StackInputs) -> tuple[Tensor, Tensor, Tensor]:
    r"""All graph convolutions and the pooling.

    .. math::
        H_{l+1} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\hat A H_l W_l^T + b_l))) \; (+ H_l), \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2},

    without dropout, relu and norm in the last layer unless `last_activation`; then mean, sum or max over each molecule's atoms.
    Source: Kipf and Welling, ICLR 2017, equation 2.

    Args:
        inputs: see :class:`StackInputs`; differentiable in x, weights, biases, norm_weights and norm_biases, once.

    Returns:
        - pooled: [B, H]
        - running means: [K, H] after this batch, when norm="batch" and `training`, else [0, H]
        - running variances: likewise

    Raises:
        ValueError: for tensors whose shape, dtype or device does not fit, or an option that the device does not have.
        TypeError: for features in a dtype that the CPU does not compute in.
        NotImplementedError: under a transform of torch.func or forward-mode differentiation.
    """
    refuse_transforms()
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # its autograd kernel, without a turn through the dispatcher
        from molgcn.ops.gcn_stack_autograd import run

        pooled, means, variances, _ = run(inputs)
    else:
        pooled, means, variances, _ = torch.ops.molgcn.gcn_stack.default(*inputs)
    return pooled, means, variances


def empty_outputs(inputs: StackInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised outputs: pooled, new running means and variances, saved."""
    x, hidden = inputs.x, inputs.hidden_channels
    statistics = inputs.num_norms if inputs.batch_statistics else 0
    pooled, means, variances = (x.new_empty(rows, hidden) for rows in (inputs.num_graphs, statistics, statistics))
    return pooled, means, variances, empty_saved(inputs)


@torch.library.register_fake("molgcn::gcn_stack")
def _fake(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from molgcn.ops.gcn_stack_check import check  # it needs this module's definitions

    inputs = StackInputs(*args)
    check(inputs)
    return empty_outputs(inputs)


def empty_saved(inputs: StackInputs) -> Tensor:
    """Return uninitialised memory, uint8 [bytes], for what the backward pass needs."""
    saved_bytes = _SAVED_BYTES.get(inputs.x.device.type)
    size = saved_bytes(inputs) if saved_bytes is not None and inputs.save_for_backward else 0
    return inputs.x.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("molgcn::gcn_stack_backward")
def empty_gradients(
    grad_pooled: Tensor, saved: Tensor, needs_grad_x: bool, *args: Any
) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Uninitialised gradients in the shapes of the parameters; x's is empty unless wanted."""
    inputs = StackInputs(*args)
    grad_x = inputs.x.new_empty(inputs.x.shape if needs_grad_x else (0, 0))
    parameters = (inputs.weights, inputs.biases, inputs.norm_weights, inputs.norm_biases)
    weights, biases, norm_weights, norm_biases = ([tensor.new_empty(tensor.shape) for tensor in tensors] for tensors in parameters)
    return grad_x, weights, biases, norm_weights, norm_biases
