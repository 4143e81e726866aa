"""backend=fused: all layers and the pooling by this project's operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from molgcn.data.batch import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import forward, fused_layers
from molgcn.nn.components import apart, of_component
from molgcn.nn.fused_encoders import atom_states
from molgcn.nn.graph_inputs import graph_inputs
from molgcn.nn.hooks import has_hooks
from molgcn.nn.members import members_of
from molgcn.nn.norms import take_statistics
from molgcn.nn.options import NO_EXTENSION
from molgcn.nn.reference import REDUCTIONS
from molgcn.ops import (
    HAS_CPU_EXTENSION,
    CallOptions,
    Epilogue,
    Graph,
    NetworkCall,
    NetworkSpec,
    Objective,
    Parameters,
    head_loss,
    message_network,
)
from molgcn.ops.head_loss import loss_of
from molgcn.ops.message_network_cuda import fuses_loss
from molgcn.ops.philox import dropout_seed
from molgcn.ops.precision import allowed_precision
from molgcn.ops.spec import POOLS

if TYPE_CHECKING:
    from molgcn.nn.layers.base import LayerKind, LayerOptions
    from molgcn.nn.molecule_net import MoleculeNet

name = "fused"


def conv(kind: LayerKind, options: LayerOptions) -> nn.Module:
    """Return the layer in plain PyTorch. The operator reads its parameters and computes all layers together."""
    return kind.reference(options)


def predictions(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the predictions [B, T].

    On CUDA one operator computes layers, pooling and head, if the head is a single linear map and no gradient is needed.

    Raises:
        UserError: for a CPU tensor where the C++ extension was not built, or a strategy that the device does not have.
    """
    if model.outputs:
        return _rows_of_levels(model, batch)
    if model.num_components > 1:
        return model.head(_of_components(model, batch))
    if not model.runs_message_network:
        free = model.descriptors is None and model.pool in POOLS
        head = _free_head(model, batch.x) if free else None
        return model.head(_by_layers(model, batch)) if head is None else _by_layers(model, batch, head)
    call = network_call(model, batch)
    inference = call.graph.x.is_cuda and not torch.is_grad_enabled() and not call.batch_statistics and model.descriptors is None
    head = _free_head(model, call.graph.x) if inference else None
    if head is None or len(head) > 1:
        return model.head(_by_message_network(model, call, batch))
    return message_network(call._replace(epilogue=Epilogue((head[0].weight, head[0].bias)))).result


def loss(model: MoleculeNet, batch: GraphBatch | Any, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the loss of :func:`predictions`, and float64 [2] with the sum and the number of its terms.

    Where there is an operator for it, head and loss are one operator, or on CUDA the whole model and the loss.
    """
    if model.outputs:
        return loss_of(_rows_of_levels(model, batch), objective, fused=True)
    if model.num_components > 1:
        return _head_loss(model, _of_components(model, batch), objective)
    if not model.runs_message_network:
        return _head_loss(model, _by_layers(model, batch), objective)
    call = network_call(model, batch)
    head = _free_head(model, call.graph.x)
    linear = head is not None and len(head) == 1 and model.descriptors is None
    if head is not None and linear and call.graph.x.is_cuda and _same_dtype(call.graph.x, objective) and fuses_loss(call):
        target, mean, std, name, delta = objective
        outputs = message_network(call._replace(epilogue=Epilogue((head[0].weight, head[0].bias), (target, mean, std), name, delta)))
        return outputs.result, outputs.of_loss[0]
    return _head_loss(model, _by_message_network(model, call, batch), objective)


def _rows_of_levels(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the rows of molecules, atoms and bonds, see :func:`molgcn.nn.forward.rows_of_levels`: heads on the operator's states."""
    graph, h = graph_inputs(model, batch), _pooled_by_layers(model, batch)
    return forward.rows_of_levels(model, graph, h if graph.num_atoms is None else F.pad(h, (0, 0, 0, 1)), REDUCTIONS)


def _of_components(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the head's input for rows of several molecules: the pooled states of each row's components side by side, and descriptors."""
    batch = _graph_batch(batch)
    if model.encoders:
        encoders = enumerate((model, *model.encoders))
        pooled = torch.cat([_pooled(one, of_component(one, batch, number)) for number, one in encoders], dim=1)
    else:
        pooled = _pooled(model, apart(batch, model.num_components)).reshape(batch.num_graphs, -1)
    return model.with_descriptors(pooled, batch.descriptors)


def _pooled(model: MoleculeNet, batch: GraphBatch) -> Tensor:
    """Return the pooled states of the molecules [B, H], by the operator that has the network."""
    return _pooled_by_layers(model, batch) if not model.runs_message_network else _pooled_by_call(model, network_call(model, batch))


def _by_layers(model: MoleculeNet, batch: GraphBatch | Any, head: Sequence[nn.Linear] = ()) -> Tensor:
    """Return the head's input, or with a head its outputs, for a network that `molgcn::layer_network` computes."""
    return model.with_descriptors(_pooled_by_layers(model, batch, head), getattr(batch, "descriptors", None))


def _pooled_by_layers(model: MoleculeNet, batch: GraphBatch | Any, head: Sequence[nn.Linear] = ()) -> Tensor:
    """Return what `molgcn::layer_network` computes, see :func:`molgcn.nn.fused_layers.pooled`."""
    batch = _graph_batch(batch)
    _check_device(batch.x.device, model.strategy)
    if model.strategy == "tile":
        raise UserError(f"backend.strategy=tile cannot compute a network of {model.conv} layers with these options. Use auto.")
    _compute_weights(members_of(model, fused_layers.PARTS).modules)
    return fused_layers.pooled(model, batch, head)


def _head_loss(model: MoleculeNet, pooled: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the loss of the head's predictions, in one operator where there is one."""
    head = _free_head(model, pooled)
    if head is None or not _same_dtype(pooled, objective) or (pooled.is_cuda and pooled.dtype != torch.float32):
        return loss_of(model.head(pooled), objective, fused=True)
    return head_loss(pooled, [linear.weight for linear in head], [linear.bias for linear in head], objective)


def _same_dtype(x: Tensor, objective: Objective) -> bool:
    return x.dtype == objective.target.dtype == objective.mean.dtype


def _free_head(model: MoleculeNet, x: Tensor) -> list[nn.Linear] | None:
    """Return the head's linear maps, if an operator may compute them: they have no hooks and autocast is off. None otherwise."""
    return None if torch.is_autocast_enabled(x.device.type) else model.linears


def _by_message_network(model: MoleculeNet, call: NetworkCall, batch: GraphBatch | Any) -> Tensor:
    """Return the head's input: the pooled states and the descriptors."""
    return model.with_descriptors(_pooled_by_call(model, call), getattr(batch, "descriptors", None))


def _pooled_by_call(model: MoleculeNet, call: NetworkCall) -> Tensor:
    """Return the pooled states, and update the norms' running statistics."""
    outputs = message_network(call)
    if call.batch_statistics and call.spec.num_norms > 0 and call.graph.num_nodes > 0:
        take_statistics(list(model.norms), outputs.statistics)
    return outputs.result


def _graph_batch(batch: GraphBatch | Any) -> GraphBatch:
    return batch if isinstance(batch, GraphBatch) else GraphBatch.from_pyg(batch)


def network_call(model: MoleculeNet, batch: GraphBatch | Any) -> NetworkCall:
    """Return the operator's arguments for a model and a batch; :func:`predictions` lists the errors."""
    batch = _graph_batch(batch)
    _check_device(batch.x.device, model.strategy)
    convs: list[Any] = list(model.convs)
    norms: list[Any] = list(model.norms)
    linears = [layer._modules["lin"] for layer in convs]  # faster than attribute access, see _tensors
    _compute_weights([*convs, *linears, *norms])
    weights = _tensors(linears, "weight")
    num_atoms = None if batch.counts is None else batch.counts[1]
    x = batch.x if model.embed is None and model.atom_scale is None else atom_states(model, batch.x, None, num_atoms).to(weights[0].dtype)
    statistics = norms if model.norm == "batch" else []
    training = fused_layers.mode_of(model, statistics, x.shape[0])
    parameters = Parameters(
        weights,
        _tensors(convs, "bias"),
        _tensors(norms, "weight"),
        _tensors(norms, "bias"),
        [norm.running_mean for norm in statistics],
        [norm.running_var for norm in statistics],
    )
    _check_norms(norms, parameters)
    spec = (NetworkSpec if torch.compiler.is_compiling() else _spec)(
        in_channels=weights[0].shape[1],
        hidden_channels=weights[0].shape[0],
        num_layers=len(weights),
        norm=model.norm,
        residual=model.residual,
        add_self_loops=model.settings["add_self_loops"],
        last_activation=model.last_activation,
        dropout=model.dropout,
        pool=model.pool,
        eps=norms[0].eps if norms else 1e-5,
        momentum=norms[0].momentum if statistics else 0.1,
    )
    tile_ptr = getattr(batch, "tile_ptr", None)
    hints = batch.tile_nodes, batch.large_molecules, batch.leaves_merged
    learns = torch.is_grad_enabled() and (x.requires_grad or any(parameter.requires_grad for parameter in parameters.tensors))
    return NetworkCall(
        Graph(x, None, batch.ptr, batch.rowptr, batch.col, None, tile_ptr, batch.counts, *hints),
        spec,
        parameters,
        dropout_seed(x.device, model.dropout if training else 0.0),
        CallOptions(training, allowed_precision(x.device), model.strategy, learns),
    )


_spec = lru_cache(NetworkSpec)  # the same object for the same options, whose tensors' shapes are made once


def _tensors(modules: list[Any], name: str) -> list[Tensor]:
    """Return a tensor of each module. Parameters are read without `nn.Module.__getattr__`, which takes half a microsecond each."""
    return [module._parameters[name] if name in module._parameters else getattr(module, name) for module in modules]


def _compute_weights(modules: list[Any]) -> None:
    """Run the forward pre-hooks that compute weights: those of `torch.nn.utils.prune`, `weight_norm` and `spectral_norm`.

    Any other hook, which would never be called, is an error.
    """
    for module in modules:
        if not has_hooks(module):
            continue
        for hook in module._forward_pre_hooks.values():
            if not isinstance(hook, (BasePruningMethod, WeightNorm, SpectralNorm)):
                raise _uncalled_hook(module)
            hook(module, ())
        if module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
            raise _uncalled_hook(module)


def _uncalled_hook(module: nn.Module) -> UserError:
    return UserError(
        f"A hook on a layer, {module}, would never be called: backend=fused runs all layers as one operator. Register it on the network, "
        "its head or a parameter, or use backend=pyg."
    )


def _check_norms(norms: list[Any], parameters: Parameters) -> None:
    kinds = {(norm.eps, getattr(norm, "momentum", 0.0)) for norm in norms}
    if len(kinds) > 1 or any(None in kind for kind in kinds) or any(tensor is None for tensors in parameters for tensor in tensors):
        raise UserError(
            "backend=fused runs all layers as one operator. Each layer needs a bias, each norm a weight and a bias, each batch norm "
            "running statistics, and all norms the same eps and momentum. Use backend=pyg for other networks."
        )


def _check_device(device: torch.device, strategy: str) -> None:
    if device.type != "cpu":
        return
    if not HAS_CPU_EXTENSION:
        raise UserError(NO_EXTENSION)
    if strategy not in ("auto", "tile"):
        raise UserError(f"backend.strategy={strategy} is for CUDA. On the CPU use auto or tile.")
