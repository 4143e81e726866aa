"""What backend=fused remembers of a network is what the network is now: after any change it computes what a copy computes."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from compiler import needs_extension
from network_cases import batch_of, network
from torch import nn
from torch.nn.utils import parametrizations, prune

from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]
OPTIONS = {"embed": True, "embed_bonds": True, "norm": "batch", "residual": True, "feed_forward": True, "head_layers": 1}


def step(model: MoleculeNet, batch: GraphBatch) -> dict[str, torch.Tensor]:
    """Return the predictions, all gradients and all buffers after a step."""
    model.zero_grad()
    torch.manual_seed(0)
    predictions = model(batch)
    if predictions.requires_grad:
        predictions.sin().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"predictions": predictions.detach(), **gradients, **dict(model.named_buffers())}


def other(parameter: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(parameter)


def tie(model: MoleculeNet) -> None:
    model.convs[1].nn = model.convs[0].nn


def untie(model: MoleculeNet) -> None:
    tie(model)
    model(GraphBatch.from_pyg(batch_of("many")))
    model.convs[1].nn = copy.deepcopy(model.convs[0].nn)


def set_norms(model: MoleculeNet, **values: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            vars(module).update(values)


def pruned_and_not(model: MoleculeNet) -> None:
    layer = prune.l1_unstructured(model.convs[0].nn[0], "weight", 0.5)
    model(GraphBatch.from_pyg(batch_of("many")))
    prune.remove(layer, "weight")


CHANGES: dict[str, Callable[[MoleculeNet], object]] = {
    "a parameter is replaced": lambda model: setattr(model.convs[0].nn[0], "weight", nn.Parameter(other(model.convs[0].nn[0].weight))),
    "an embedding is replaced": lambda model: setattr(model.embed, "weight", nn.Parameter(other(model.embed.weight))),
    "a buffer is replaced": lambda model: setattr(model.norms[0], "running_mean", other(model.norms[0].running_mean)),
    "data is replaced": lambda model: setattr(model.convs[0].nn[0].weight, "data", other(model.convs[0].nn[0].weight)),
    "strides change": lambda model: setattr(model.convs[0].nn[0].weight, "data", other(model.convs[0].nn[0].weight).T.contiguous().T),
    "values change": lambda model: model.convs[0].nn[0].weight.data.neg_(),
    "layers are frozen": lambda model: model.convs.requires_grad_(False),
    "all is frozen": lambda model: model.requires_grad_(False),
    "layers share parameters": tie,
    "layers share parameters no more": untie,
    "a module is replaced": lambda model: setattr(model, "norms", copy.deepcopy(model.norms)),
    "the head is replaced": lambda model: setattr(model, "head", nn.Linear(model.hidden_channels, 2).double()),
    "evaluation": lambda model: model.eval(),
    "evaluation and training": lambda model: model.eval().train(),
    "eps": lambda model: set_norms(model, eps=0.5),
    "momentum": lambda model: set_norms(model, momentum=0.9),
    "dropout": lambda model: setattr(model, "dropout", 0.5),
    "pruned no more": pruned_and_not,
    "a state dict is loaded": lambda model: model.load_state_dict({name: 2 * tensor for name, tensor in model.state_dict().items()}),
    "moved there and back": lambda model: model.float().double(),
    "a hook on the head": lambda model: model.head.register_forward_hook(lambda module, given, output: 2 * output),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_network_computes_what_its_copy_does(change):
    torch.manual_seed(0)
    model, batch = network("gine", OPTIONS, "fused").train(), GraphBatch.from_pyg(batch_of("many"))
    for _ in range(2):
        step(model, batch)
    torch.manual_seed(1)
    CHANGES[change](model)
    alone = copy.deepcopy(model)
    torch.testing.assert_close(step(model, batch), step(alone, batch), rtol=0, atol=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_network_that_was_called_is_its_own(copied):
    model, batch = network("gine", OPTIONS, "fused").train(), GraphBatch.from_pyg(batch_of("many"))
    step(model, batch)
    other = copied(model)
    expected = step(model, batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    torch.testing.assert_close(step(other, batch), expected, rtol=0, atol=0)


def test_a_change_that_cannot_be_computed_is_refused_after_a_call():
    model, batch = network("gine", OPTIONS, "fused").train(), GraphBatch.from_pyg(batch_of("many"))
    step(model, batch)
    model.norms[0].eval()
    with pytest.raises(UserError, match="another mode"):
        model(batch)
    model.train().norms[0].eps = 0.5
    with pytest.raises(UserError, match="the same eps"):
        model(batch)
    model.norms[0].eps = model.norms[1].eps
    model.convs[0].nn[0].register_forward_hook(print)
    with pytest.raises(UserError, match="would never be called"):
        model(batch)


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def adapted(model: MoleculeNet) -> None:
    """Put a subclass in the place of a linear map, as low-rank adapters do."""
    model.convs[0].nn[0] = Scaled(model.hidden_channels, model.hidden_channels).double()


REPLACEMENTS: dict[str, Callable[[MoleculeNet], object]] = {
    "a subclass": adapted,
    "an activation": lambda model: setattr(model, "activate", nn.GELU()),
    "an activation in a layer": lambda model: model.convs[0].nn.__setitem__(2 if len(model.convs[0].nn) == 4 else 1, nn.GELU()),
    "a norm": lambda model: model.norms.__setitem__(0, nn.SyncBatchNorm(model.hidden_channels).double()),
    "a method": lambda model: setattr(model.convs[1], "forward", lambda *given: given[0]),
}


@pytest.mark.parametrize("called", [False, True], ids=["first", "after a call"])
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_modules_that_would_never_be_called_are_refused(replacement, called):
    model, batch = network("gine", OPTIONS, "fused").train(), GraphBatch.from_pyg(batch_of("many"))
    if called:
        step(model, batch)
    REPLACEMENTS[replacement](model)
    with pytest.raises(UserError, match="would never call it"):
        model(batch)
    with pytest.raises(UserError, match="make layers anew"):
        model.on_backend("pyg")
    assert model.on_backend("reference")(batch).isfinite().all()


@pytest.mark.parametrize("conv", ["gcn", "gated_gcn"])
def test_running_statistics_that_are_means_over_batches(conv):
    models = [network(conv, OPTIONS, backend).train() for backend in ("fused", "pyg")]
    batches = [batch_of(name) for name in ("many", "no bonds", "many")]
    for model in models:
        model(batches[0])
        torch.optim.swa_utils.update_bn(batches, model)
        set_norms(model, momentum=None)
        model(batches[1])
    torch.testing.assert_close(*(dict(model.named_buffers()) for model in models))


@pytest.mark.parametrize("more", [0, 1])
def test_layers_that_were_added_are_computed(more):
    """The number of layers is that of the modules, whatever `num_layers` says."""
    model, batch = network("gine", OPTIONS, "fused").eval(), GraphBatch.from_pyg(batch_of("many"))
    for part in (model.convs, model.norms, model.feed_forwards):
        part.append(copy.deepcopy(part[-1]))
    model.num_layers += more
    torch.testing.assert_close(model(batch), model.on_backend("pyg")(batch))


@pytest.mark.parametrize("backend", ["reference", "pyg"])
def test_another_backend_keeps_what_is_frozen_and_what_is_shared(backend):
    model = network("gine", OPTIONS, "fused").train()
    model.convs[0].requires_grad_(False)
    model.convs[1].nn[0].weight = model.convs[0].nn[0].weight
    model.norms[0].eval()
    moved = model.on_backend(backend).on_backend("fused")
    assert [parameter.requires_grad for parameter in moved.parameters()] == [parameter.requires_grad for parameter in model.parameters()]
    assert moved.convs[1].nn[0].weight is moved.convs[0].nn[0].weight
    assert [norm.training for norm in moved.norms] == [norm.training for norm in model.norms]
    assert moved.convs[0].nn[0].weight is not model.convs[0].nn[0].weight


def test_pyg_refuses_weights_that_are_computed():
    model = network("gine", OPTIONS, "fused")
    parametrizations.weight_norm(model.convs[0].nn[0])
    with pytest.raises(UserError, match="computed from others"):
        model.on_backend("pyg")
