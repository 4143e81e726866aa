"""All networks: backends that agree, padded batches, weights, numbers of parameters and options that do not fit."""

import copy
import pickle

import pytest
import torch
from network_cases import BATCHES, CASES, NUM_FEATURES, ONCE, OPTIONS, RICH, batch_of, network

from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import GCN, MoleculeNet
from molgcn.nn.layers.base import LayerKind
from molgcn.nn.options import PLAIN
from molgcn.nn.registry import get_kind, layer_names, register

pytestmark = pytest.mark.usefixtures("one_thread")
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def outcome(model: MoleculeNet, batch) -> dict[str, torch.Tensor]:
    """Return the predictions, the gradients of all weights and of the features, and the buffers after one training step."""
    model.zero_grad()
    batch.x = batch.x.clone().requires_grad_()
    prediction = model(batch)
    prediction.square().sum().backward()
    gradients = {name: torch.zeros(()) if one.grad is None else one.grad for name, one in model.named_parameters()}
    return {"prediction": prediction, "x": batch.x.grad, **gradients, **dict(model.named_buffers())}


OTHER_BATCHES = [(*case, batch) for case in RICH for batch in BATCHES if batch != "many"]


@pytest.mark.parametrize(
    ("conv", "options", "batch"),
    [(*case, "many") if case in ONCE else pytest.param(*case, "many", marks=pytest.mark.slow) for case in CASES] + OTHER_BATCHES,
)
def test_backends_agree(conv, options, batch):
    """Predictions, running statistics and all gradients agree in float64, in training and in evaluation."""
    for training in (True, False):
        results = []
        for backend in ("reference", "pyg"):
            model = network(conv, OPTIONS[options], backend).train(training)
            results.append(outcome(model, batch_of(batch)))
        assert results[0].keys() == results[1].keys()
        assert all(value.isfinite().all() for value in results[0].values())
        torch.testing.assert_close(results[0], results[1], **EXACT)


@pytest.mark.parametrize("conv", layer_names())
def test_one_seed_gives_one_set_of_weights(conv):
    for options in OPTIONS.values():
        reference, pyg = (network(conv, options, backend).state_dict() for backend in ("reference", "pyg"))
        assert list(reference) == list(pyg), options
        assert all(torch.equal(reference[key], pyg[key]) for key in reference), options


def padded(batch: GraphBatch, atoms: int, bonds: int, molecules: int) -> GraphBatch:
    """Return the batch in a slot with that many more places, which hold rows of an earlier batch."""

    def longer(tensor, count, value=None):
        rows = torch.full((count, *tensor.shape[1:]), 7.0, dtype=torch.double) if value is None else torch.full((count,), value)
        return torch.cat([tensor, rows.to(tensor.dtype)])

    sizes = batch.num_graphs, batch.num_nodes, batch.num_edges
    arguments = longer(batch.x, atoms), longer(batch.ptr, molecules, sizes[1]), longer(batch.rowptr, atoms, sizes[2])
    col, targets = longer(batch.col, bonds, 0), torch.zeros(sizes[0] + molecules, 1)
    rows = {"edge_attr": longer(batch.edge_attr, bonds), "rwse": longer(batch.rwse, atoms), "bond_rw": longer(batch.bond_rw, bonds)}
    rows["descriptors"] = longer(batch.descriptors, molecules)
    slot = GraphBatch(*arguments, col, targets, tile_nodes=64, **rows)
    slot.counts = torch.tensor([*sizes, 1], dtype=torch.int32)
    return slot


FULL = [(*case, places) for case in RICH for places in ((0, 0, 0), (0, 4, 1))]


@pytest.mark.parametrize(("conv", "options", "places"), [(*case, (3, 5, 2)) for case in ONCE] + FULL)
def test_padding_does_not_count(conv, options, places):
    """Predictions, gradients and running statistics of a padded batch are those of the real molecules alone."""
    batch = GraphBatch.from_pyg(batch_of("many"))
    alone, with_padding = (network(conv, OPTIONS[options]) for _ in range(2))
    expected = outcome(alone, batch)
    batch.x = batch.x.detach()
    slot = padded(batch, *places)
    slot.x.requires_grad_()
    prediction = with_padding(slot)
    assert prediction.isfinite().all()
    prediction[: batch.num_graphs].square().sum().backward()
    actual = {name: torch.zeros(()) if one.grad is None else one.grad for name, one in with_padding.named_parameters()}
    actual |= {"prediction": prediction[: batch.num_graphs], "x": slot.x.grad[: batch.num_nodes], **dict(with_padding.named_buffers())}
    torch.testing.assert_close(actual, {name: expected[name] for name in actual}, **EXACT)


@pytest.mark.parametrize("conv", layer_names())
def test_padding_does_not_overflow_in_deep_networks(conv):
    """In float32 all gradients are those of the real molecules alone, though 2,000 padding bonds meet at one atom."""
    batch = GraphBatch.from_pyg(batch_of("many"))
    found = []
    for given in (batch, padded(batch, 0, 2000, 0)):
        given.x = given.x.detach().float()
        model = network(conv, {"norm": "batch", "residual": True, "feed_forward": True}, num_layers=16).float()
        model(given)[: batch.num_graphs].square().mean().backward()
        found.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    assert all(gradient.isfinite().all() for gradient in found[0].values())
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("conv", "options"), ONCE)
def test_nothing_waits_for_the_device(conv, options):
    """A training step on a padded batch runs on tensors without values, so that a CUDA graph can hold it."""
    slot = padded(GraphBatch.from_pyg(batch_of("many")), 3, 5, 2).to("meta")
    model = network(conv, {"dropout": 0.5, **OPTIONS[options]}).to("meta")
    prediction = model(slot)
    assert prediction.shape == (slot.num_graphs, 2)
    prediction.sum().backward()


@pytest.mark.parametrize(("conv", "options"), RICH)
def test_a_copy_on_another_backend_predicts_the_same(conv, options):
    model = network(conv, OPTIONS[options], "pyg").eval()
    moved = model.on_backend("reference")
    assert (moved.backend.name, moved.training) == ("reference", False)
    torch.testing.assert_close(moved(batch_of("many")), model(batch_of("many")), **EXACT)


MADE = {"norm": "batch", "residual": True, "feed_forward": True}


@pytest.mark.parametrize(("option", "value"), [("activation", "gelu"), ("settings", {}), ("feed_forward_norm", None), ("conv", "sage")])
def test_an_option_of_layers_cannot_be_set(option, value):
    model = MoleculeNet(NUM_FEATURES, 8, 2, 1, conv="gin", **MADE)
    with pytest.raises(UserError, match=rf"^{option}=.*: the layers of this network were made with {option}="):
        setattr(model, option, value)
    setattr(model, option, getattr(model, option))


@pytest.mark.parametrize(("option", "value"), [("pool", "max"), ("residual", False), ("last_activation", False), ("norm", None)])
def test_other_options_that_are_set_are_those_of_all_backends(option, value):
    model = MoleculeNet(NUM_FEATURES, 8, 2, 1, conv="gin", backend="reference", **MADE).double().eval()
    before, models = model(batch_of("many")), [model, model.on_backend("pyg"), model.on_backend("auto")]
    for one in models:
        setattr(one, option, value)
    first, *others = (one(batch_of("many")) for one in models)
    assert not torch.equal(first, before)
    for other in others:
        torch.testing.assert_close(other, first, **EXACT)


@pytest.mark.parametrize("conv", layer_names())
def test_networks_can_be_copied_and_pickled(conv):
    model = network(conv, OPTIONS["gnn+"]).eval()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(other) == repr(model)
        assert torch.equal(other(batch_of("many")), model(batch_of("many")))


@pytest.mark.parametrize("conv", layer_names())
def test_dropout_follows_torch_s_generator(conv):
    model = network(conv, {"dropout": 0.5, "feed_forward": True})
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(model(batch_of("many")))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


PLUS = {"embed": True, "embed_bonds": True, "rwse_dim": 28, "residual": True, "pool": "sum", "head_layers": 2, "feed_forward": True}


@pytest.mark.parametrize(
    ("conv", "width", "depth", "norm", "steps", "count"),
    [("gcn_edge", 64, 12, "batch", 32, 260_177), ("gine", 80, 12, None, 20, 477_241), ("gated_gcn", 70, 9, "batch", 20, 413_355)],
)
def test_published_networks_have_their_numbers_of_parameters(conv, width, depth, norm, steps, count):
    """GCN+, GIN+ and GatedGCN+ of Luo et al. (2025) on ZINC-12k, with 21 atom and 4 bond types."""
    model = MoleculeNet(21, width, depth, 1, conv=conv, edge_channels=4, norm=norm, rwse=steps, bond_rw=steps, backend="reference", **PLUS)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_gcn_is_one_of_the_family():
    options = {"norm": "batch", "residual": True, "embed": True, "head_layers": 1, "backend": "pyg"}
    torch.manual_seed(0)
    gcn = GCN(NUM_FEATURES, 8, 3, 2, add_self_loops=False, **options).double()
    torch.manual_seed(0)
    net = MoleculeNet(NUM_FEATURES, 8, 3, 2, conv="gcn", add_self_loops=False, last_activation=False, init="glorot", **options).double()
    assert isinstance(gcn, MoleculeNet)
    assert gcn.state_dict().keys() == net.state_dict().keys()
    assert torch.equal(gcn(batch_of("many")), net(batch_of("many")))
    assert repr(net) == "MoleculeNet(6, 8, num_layers=3, out_channels=2, conv='gcn', backend='pyg')"


@pytest.mark.parametrize("conv", layer_names())
def test_every_weight_that_learns_has_a_gradient(conv):
    """DistributedDataParallel waits for the gradient of every weight that requires one."""
    for options in OPTIONS.values():
        model = network(conv, options)
        model(batch_of("many")).sum().backward()
        assert [name for name, one in model.named_parameters() if one.requires_grad != (one.grad is not None)] == [], options


def test_without_a_row_batch_norm_keeps_its_statistics():
    model = network("gated_gcn", {"norm": "batch"})
    before = [norm.running_var.clone() for norm in model.edge_norms]
    model(batch_of("no bonds"))
    assert all(torch.equal(norm.running_var, value) for norm, value in zip(model.edge_norms, before, strict=True))


# --- what does not fit ---
@pytest.mark.parametrize("conv", layer_names())
def test_an_option_that_a_layer_cannot_have_is_an_error(conv):
    """All options in `LayerKind.without` are refused; the cases above show that every other option is accepted."""
    other = {"norm": "batch", "residual": True, "feed_forward": True, "readout": "all", "last_activation": False, "embed": True}
    for name in get_kind(conv).without:
        with pytest.raises(UserError, match=rf"model\.{name}=\w+ does not go with {conv}: .*\. Use \w+\."):
            MoleculeNet(NUM_FEATURES, 8, 2, 1, conv=conv, **{name: other[name]})
    assert get_kind(conv).without.keys() <= PLAIN.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conv": "gcnn"}, "model.name='gcnn' is not valid: expected one of gcn, gin"),
        ({"conv": "gin", "edge_channels": 3}, "model.bonds=true does not go with gin"),
        ({"conv": "gine"}, "model.bonds=false does not go with gine, which needs bonds"),
        ({"conv": "gine", "edge_channels": 0}, "edge_channels=0: expected at least one feature per bond"),
        ({"conv": "gin", "bond_rw": 3}, "model.encodings.bond_rw=3 does not go with gin"),
        ({"conv": "gine", "edge_channels": 3, "bond_rw": 3}, "Use model.embed_bonds=true with it"),
        ({"conv": "gat", "embed_bonds": True}, "Use model.bonds=true with it"),
        ({"conv": "gin", "rwse": -1}, "model.encodings.rwse=-1: expected a number of random-walk steps"),
        ({"conv": "gin", "rwse": 4, "rwse_dim": 8, "embed": True}, "model.encodings.rwse_dim=8: expected at least 1 and less than"),
        ({"conv": "gin", "heads": 3}, "model.heads is not an option of gin, whose own options are: eps, train_eps"),
        ({"conv": "dmpnn", "depth": 3}, "model.depth is not an option of dmpnn, whose own options are: undirected, message_bias"),
        ({"conv": "gat", "heads": 3}, "heads=3 does not fit"),
        ({"conv": "gin", "activation": "swish"}, "model.activation=swish: expected relu, gelu, silu, leaky_relu, elu or tanh"),
        ({"conv": "gin", "readout": "first"}, "model.readout=first: expected last or all"),
        ({"conv": "gin", "feed_forward_norm": "x"}, "model.feed_forward_norm=x: expected batch, layer or null"),
        ({"conv": "gin", "head_channels": [4, 0]}, r"model.head_channels=\[4, 0\]"),
        ({"conv": "gin", "backend": "reference", "strategy": "tile"}, "belongs to backend=fused; backend=reference has only auto"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(UserError, match=message):
        MoleculeNet(NUM_FEATURES, 8, 2, 1, **options)


def test_a_batch_without_the_bonds_that_the_network_reads():
    batch = batch_of("many")
    del batch["edge_attr"]
    with pytest.raises(UserError, match="The network reads `edge_attr`, which the batch does not have"):
        network("gine", {})(batch)


def test_auto_takes_the_reference_where_the_kernels_lack_the_network(caplog):
    register(LayerKind("without steps", get_kind("gin").reference))
    with caplog.at_level("INFO"):
        for _ in range(2):
            assert MoleculeNet(NUM_FEATURES, 8, 2, 1, conv="without steps", backend="auto").backend.name == "reference"
    assert caplog.text.count("no operators for this network: its layers are without steps, not gcn, gin") <= 1  # once in a process
    with pytest.raises(UserError, match=r"no operators .* are without steps, not gcn, .* Use backend=reference"):
        MoleculeNet(NUM_FEATURES, 8, 2, 1, conv="without steps", backend="fused")


def test_a_layer_of_one_s_own():
    register(kind := LayerKind("own", get_kind("gin").reference, settings=get_kind("gin").settings))
    register(kind)
    assert network("own", {}, eps=0.5).settings["eps"] == 0.5
    with pytest.raises(UserError, match="backend=pyg has no layer own"):
        network("own", {}, "pyg")
    with pytest.raises(UserError, match="A layer called gin is registered already"):
        register(LayerKind("gin", kind.reference))
