"""Contributions of atoms, bonds and descriptors add up to prediction minus baseline, for every network and task."""

import numpy as np
import pytest
import torch
from explained_networks import NETWORKS, SMILES, regressor

from molgcn.config.run import Config, parse
from molgcn.data import PackedMolecules
from molgcn.data.components import join_components
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.featurize import sides_of_graph
from molgcn.errors import UserError
from molgcn.explain.command import explained_column
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions, explainer, masking
from molgcn.explain.network import ExplainedNetwork
from molgcn.explain.page import on_drawn_atoms
from molgcn.nn.build import edge_channels_of
from molgcn.tasks.registry import build_task
from molgcn.training.module import MoleculeModule

pytestmark = pytest.mark.usefixtures("one_thread")
DESCRIPTORS = np.random.default_rng(0).normal(3, 2, (len(SMILES), 3))


@pytest.fixture(scope="module")
def molecules():
    return PackedMolecules.from_smiles(SMILES, features="general")


@pytest.fixture(scope="module")
def described(molecules):
    return with_descriptors(molecules, DESCRIPTORS, ["weight", "charge", "ph"])


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("method", ["integrated_gradients", "masking"])
def test_they_add_up_for_every_network(molecules, model, method):
    module = regressor(molecules, model)
    with torch.no_grad():
        predictions = module(molecules.batch(slice(None))).numpy()
    config = ExplainConfig(method=method, tolerance=0.02, orders=3)
    for column in (0, 1):
        network = ExplainedNetwork(module, column)
        explain = explainer(network, config)
        for place, graph in enumerate(network.graphs(molecules)):
            if place % 2 != column:
                continue
            found = explain(graph)
            assert found.prediction == pytest.approx(predictions[place, column], rel=1e-5, abs=1e-5)
            assert found.relative_error < (1e-12 if method == "masking" else 0.02)
            assert len(found.atoms) == molecules.num_nodes_per_graph[place]
            assert len(found.bonds) == (len(found.ends) if module.model.edge_channels else 0)
            assert found.of_atoms.sum() == pytest.approx(found.atoms.sum() + found.bonds.sum(), abs=1e-9)


@pytest.mark.parametrize("model", ["gine", "dmpnn"])
@pytest.mark.parametrize("method", ["integrated_gradients", "masking"])
def test_descriptors_have_contributions_against_their_mean(described, model, method):
    module = regressor(described, {**NETWORKS[model], "descriptor_limit": 1.5})
    with torch.no_grad():
        predictions = module(described.batch(slice(None))).numpy()
    network = ExplainedNetwork(module, 1)
    explain = explainer(network, ExplainConfig(method=method, tolerance=0.01, orders=4))
    for place, graph in enumerate(network.graphs(described)):
        found = explain(graph)
        assert found.prediction == pytest.approx(predictions[place, 1], rel=1e-5, abs=1e-5)
        at_mean = network(
            graph,
            0 * graph.x[None],
            *([] if graph.edge_attr is None else [0 * graph.edge_attr[None]]),
            descriptors=graph.baseline.descriptors,
        )
        assert found.baseline == at_mean.item()
        assert found.descriptors.shape == (3,) and np.abs(found.descriptors).min() > 0
        parts = found.atoms.sum() + found.bonds.sum() + found.descriptors.sum()
        assert parts == pytest.approx(found.prediction - found.baseline, abs=1e-9 if method == "masking" else 0.02)


def test_gradients_of_descriptors_are_integrated_along_the_line(described):
    """The contributions equal the midpoint rule over 300 points, computed one by one."""
    network = ExplainedNetwork(regressor(described), 0)
    graph = next(network.graphs(described))
    np.testing.assert_allclose(graph.baseline.descriptors[0], DESCRIPTORS.mean(axis=0), rtol=1e-6)
    found = explainer(network, ExplainConfig(steps=300))(graph)
    total, difference = torch.zeros(3, dtype=torch.float64), graph.descriptors - graph.baseline.descriptors
    for number in range(300):
        share = (number + 0.5) / 300
        given = (graph.baseline.descriptors + share * difference).requires_grad_()
        network(graph, share * graph.x[None], share * graph.edge_attr[None], given).backward()
        total += given.grad[0] / 300
    np.testing.assert_allclose(found.descriptors, total * difference[0], atol=5e-3)


def test_a_descriptor_that_the_head_takes_alone_has_exactly_its_own_part(described):
    """The head is linear: a descriptor's part is its weight times its standardised value, by either method."""
    module = regressor(described, {"name": "gcn", "head_layers": 0})
    weight = module.model.head.weight[0, -3:].detach().double().numpy()
    network = ExplainedNetwork(module, 0)
    std = float(module.statistics[1][0])
    for method in ("integrated_gradients", "masking"):
        explain = explainer(network, ExplainConfig(method=method, orders=1))
        for place, graph in enumerate(network.graphs(described)):
            values = (DESCRIPTORS[place] - DESCRIPTORS.mean(axis=0)) / DESCRIPTORS.std(axis=0)
            np.testing.assert_allclose(explain(graph).descriptors, weight * values * std, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("task", "num_classes"), [("classification", 2), ("multiclass", 3)])
def test_classes_are_explained_by_their_logits(molecules, task, num_classes):
    module = regressor(molecules, task=task, num_classes=num_classes)
    with torch.no_grad():
        logits = module.model(molecules.batch(slice(None)))
    for column in range(logits.shape[1]):
        network = ExplainedNetwork(module, column)
        predictions = [network.with_and_without(graph)[0] for graph in network.graphs(molecules)]
        np.testing.assert_allclose(predictions, logits[:, column], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", ["mve", "evidential", "quantile"])
def test_values_that_come_with_their_spread_are_explained_as_they_are_written(molecules, loss):
    module = regressor(molecules, loss=loss)
    with torch.no_grad():
        predictions = module(molecules.batch(slice(None)))
    column, name, header = explained_column(module.task, ExplainConfig(target="b"))
    assert [one for names in module.task.columns for one in names][column] == header == f"{name} predicted"
    network = ExplainedNetwork(module, column)
    explain = explainer(network, ExplainConfig(method="masking", orders=1))
    found = [explain(graph) for graph in network.graphs(molecules)]
    np.testing.assert_allclose([one.prediction for one in found], predictions[:, column], rtol=1e-5, atol=1e-5)
    assert max(one.relative_error for one in found) < 1e-12


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("method", ["integrated_gradients", "masking"])
def test_rows_of_several_molecules_add_up_over_all_of_them(shared, method):
    """Each molecule has its own atoms and bonds, counted from 0."""
    solutes, solvents = SMILES, ["O", "CCO", "C1CC1", "CO"]
    rows = join_components([PackedMolecules.from_smiles(one, features="general") for one in (solutes, solvents)], ["solute", "solvent"])
    model = {"name": "gine", "bonds": True, "hidden_channels": 8, "num_layers": 2, "shared_encoder": shared}
    config = parse(Config, {"dataset": {}, "model": model})
    task = build_task("regression", ["a"], [""], 0)
    torch.manual_seed(0)
    statistics = {name: torch.ones(shape) for name, shape in task.statistics_shapes().items()}
    edges = edge_channels_of(config.model, rows)
    module = MoleculeModule(config, rows.num_features, task, statistics, "general", edge_channels=edges, num_components=2).eval()
    with torch.no_grad():
        predictions = module(rows.batch(slice(None))).numpy()
    network = ExplainedNetwork(module, 0)
    explain = explainer(network, ExplainConfig(method=method, tolerance=0.02, orders=2))
    for place, graph in enumerate(network.graphs(rows)):
        found = explain(graph)
        assert found.prediction == pytest.approx(predictions[place, 0], rel=1e-5, abs=1e-5)
        assert found.relative_error < (1e-12 if method == "masking" else 0.02)
        assert sum(one.of_atoms.sum() for one in found.of_molecules) == pytest.approx(found.of_atoms.sum(), abs=1e-12)
        for one, smiles in zip(found.of_molecules, (solutes[place], solvents[place]), strict=True):
            mol = sides_of_graph(smiles, "general", "smiles")[0].mol
            ends = sorted(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())) for bond in mol.GetBonds())
            assert (len(one.atoms), one.ends.tolist(), len(one.bonds)) == (mol.GetNumAtoms(), ends, len(ends))


def test_gradients_are_integrated_along_the_line(molecules):
    """The contributions equal the midpoint rule over 300 points, computed one by one."""
    network = ExplainedNetwork(regressor(molecules), 0)
    graph = list(network.graphs(molecules))[3]
    found = explainer(network, ExplainConfig(steps=300))(graph)
    total = torch.zeros_like(graph.x)
    for number in range(300):
        share = (number + 0.5) / 300
        x = (share * graph.x).requires_grad_()
        network(graph, x[None], share * graph.edge_attr[None]).backward()
        total += x.grad / 300
    np.testing.assert_allclose(found.atoms, (total * graph.x).sum(dim=1), atol=5e-3)


def test_two_orders_of_two_atoms_give_shapley_values(molecules):
    network = ExplainedNetwork(regressor(molecules, NETWORKS["gcn"]), 0)
    (graph,) = network.graphs(PackedMolecules.from_smiles(["CO"], features="general"))

    def value(first, second):
        return network(graph, (graph.x * torch.tensor([[first], [second]]))[None]).item()

    atoms, bonds, descriptors = masking(network, graph, 2)
    one = (value(1, 1) - value(0, 1) + value(1, 0) - value(0, 0)) / 2
    other = (value(1, 1) - value(1, 0) + value(0, 1) - value(0, 0)) / 2
    np.testing.assert_allclose(atoms, [one, other], atol=1e-12)
    assert bonds.shape == descriptors.shape == (0,)


def test_the_weights_of_the_module_stay(molecules):
    module = regressor(molecules)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = ExplainedNetwork(module, 0)
    explainer(network, ExplainConfig())(next(network.graphs(molecules)))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert next(module.parameters()).requires_grad


def test_hydrogens_that_are_not_drawn_count_at_their_neighbour():
    ends = np.array([[0, 1], [0, 2], [1, 3]])
    found = Contributions(np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.5, 0.25, 0.125]), ends, np.zeros(0), 0.0, 0.0)
    whole = [1 + 0.25 + 0.125, 2 + 0.25 + 0.0625, 4 + 0.125, 8 + 0.0625]
    np.testing.assert_allclose(on_drawn_atoms(found, 4), whole)
    np.testing.assert_allclose(on_drawn_atoms(found, 2), [whole[0] + whole[2], whole[1] + whole[3]])


def test_without_captum(molecules, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "captum", None)
    network = ExplainedNetwork(regressor(molecules), 0)
    with pytest.raises(UserError, match=r"needs the package captum.*pip install molgcn\[explain\].*method=masking"):
        explainer(network, ExplainConfig())
    explainer(network, ExplainConfig(method="masking"))
