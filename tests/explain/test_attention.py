"""`method=attention` gives the shares of attention rollout, and says that they do not add up to a prediction."""

import csv
from collections import defaultdict

import numpy as np
import pytest
import torch
from explained_networks import NETWORKS, SMILES, regressor

from molgcn import load
from molgcn.config.run import Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.explain.attention import rollout
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import explainer
from molgcn.explain.network import ExplainedNetwork
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")
GAT = {"name": "gat", "bonds": True, "heads": 2, "num_layers": 3, "norm": None, "residual": False}
CASES = {  # changes of the network, and the layers whose input is added to their output; the first one changes the width
    "plain": ({}, ()),
    "without bonds": ({"bonds": False}, ()),
    "residual": ({"residual": True}, (1, 2)),
    "linear residual": ({"name": "gatv2", "linear_residual": True, "concat": False}, (0, 1, 2)),
    "all layers": ({"readout": "all", "residual": True}, (1, 2)),
    "max": ({"pool": "max"}, ()),
    "attention": ({"pool": "attention", "norm": "batch"}, ()),
}


@pytest.fixture(scope="module")
def molecules():
    return PackedMolecules.from_smiles(SMILES, features="general")


def matrices(network: ExplainedNetwork, graph) -> list[np.ndarray]:
    """Return the weights of each layer, averaged over heads, as matrices [N, N] from each target to its sources."""
    found = []
    for edges, weights in network.model.attention_weights(graph):
        matrix = np.zeros((len(graph.x), len(graph.x)))
        np.add.at(matrix, tuple(edges.flip(0).numpy()), weights.mean(dim=1).numpy())
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
        found.append(matrix)
    return found


def pooled(network: ExplainedNetwork, graph) -> np.ndarray:
    """Return what each atom counts in the pooling of one molecule."""
    if network.model.pool == "attention":
        return network.model.pool_weights(graph).numpy()
    h = []
    last = network.model.convs[-1].register_forward_hook(lambda *given: h.append(given[-1].relu()))
    network.model(graph)
    last.remove()
    maximum = (h[0] == h[0].amax(dim=0)).double()
    each = maximum / maximum.sum(dim=0) if network.model.pool == "max" else torch.ones_like(h[0]) / len(h[0])
    return each.mean(dim=1).numpy()


@pytest.mark.parametrize(("change", "kept"), CASES.values(), ids=CASES)
def test_shares_are_products_of_the_layers_matrices(molecules, change, kept):
    network = ExplainedNetwork(regressor(molecules, {**GAT, **change}), 0)
    for graph in network.graphs(molecules):
        identity, layers = np.eye(len(graph.x)), matrices(network, graph)
        rows = [(matrix + identity) / 2 if layer in kept else matrix for layer, matrix in enumerate(layers)]
        states = [rows[0], rows[1] @ rows[0], rows[2] @ rows[1] @ rows[0]]
        read = sum(states) / 3 if "readout" in change else states[-1]
        atoms, bonds, descriptors = rollout(network.model, graph)
        np.testing.assert_allclose(atoms, pooled(network, graph) @ read, rtol=1e-10)
        assert atoms.sum() == pytest.approx(1, abs=1e-12) and atoms.min() >= 0
        assert (len(bonds), len(descriptors)) == (len(graph.ends), 0)


def test_a_bond_has_what_passes_along_it(molecules):
    network = ExplainedNetwork(regressor(molecules, GAT), 0)
    graph = next(network.graphs(molecules))
    layers, share, expected = matrices(network, graph), np.full(len(graph.x), 1 / len(graph.x)), 0
    for matrix in reversed(layers):
        along = share[:, None] * matrix
        expected, share = expected + (along + along.T) / 3, along.sum(axis=0)
    np.testing.assert_allclose(rollout(network.model, graph)[1], expected[tuple(graph.ends.T)], rtol=1e-10)


def test_a_drawing_shows_atoms_alone(molecules):
    network = ExplainedNetwork(regressor(molecules, NETWORKS["gat"]), 0)
    found = explainer(network, ExplainConfig(method="attention"))(next(network.graphs(molecules)))
    np.testing.assert_array_equal(found.of_atoms, found.atoms)
    assert found.bonds.sum() > 0


@pytest.mark.parametrize("model", ["gcn", "gine", "dmpnn"])
def test_networks_without_attention_are_named(molecules, model):
    with pytest.raises(UserError, match=rf"{model} layers has no attention weights. Networks with attention are model=gat and model=gatv2"):
        explainer(ExplainedNetwork(regressor(molecules, NETWORKS[model]), 0), ExplainConfig(method="attention"))


def explained(folder, output, **values):
    values = {"device": "cpu", "num_workers": 0, "ckpt": str(folder), "output": str(output), "method": "attention", **values}
    explain(parse(ExplainConfig, values))
    with open(output / "molecules.csv", newline="") as molecules, open(output / "contributions.csv", newline="") as parts:
        return [*csv.DictReader(molecules)], [*csv.DictReader(parts)], (output / "index.html").read_text()


def trained(folder, rows, dataset, model, blend="none"):
    """Return the folder of a run of small gat layers on rows of a table with the target y."""
    (folder / "x.csv").write_text("\n".join(rows))
    values = {
        "dataset": {"name": "csv", "path": str(folder / "x.csv"), "targets": ["y"], "features": "general", "batch_size": 16, **dataset},
        "model": {**GAT, "hidden_channels": 8, **model},
        "training": {"report": False, "blend": blend},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    return train(parse(Config, values), folder / "run").folder


@pytest.mark.parametrize("shared", [True, False])
def test_a_trained_network_of_rows_of_two_molecules(tmp_path, caplog, shared):
    caplog.set_level("INFO")
    rows = [f"{'C' * (n % 7 + 1)}{'NO'[n % 2]},{'C' * (n % 3 + 1)}O,{n % 7 + 0.1 * n}" for n in range(60)]
    dataset, model = {"smiles": ["solute", "solvent"]}, {"shared_encoder": shared, "pool": "attention"}
    run = trained(tmp_path, ["solute,solvent,y", *rows], dataset, model)
    (tmp_path / "new.csv").write_text("solute,solvent\nCC(=O)N,CCO\nc1ccccc1,O\n")
    molecules, parts, page = explained(run, tmp_path / "why", input=str(tmp_path / "new.csv"))
    assert list(molecules[0]) == ["solute", "solvent", "y predicted"]
    predicted = load(run, device="cpu").predict([["CC(=O)N", "CCO"], ["c1ccccc1", "O"]]).values[:, 0]
    np.testing.assert_allclose([float(row["y predicted"]) for row in molecules], predicted, rtol=1e-5)
    sums = defaultdict(float)
    for part in parts:
        if part["part"] == "atom":
            sums[part["row"], part["component"]] += float(part["attention"])
    assert list(sums) == [(row, component) for row in "01" for component in ("solute", "solvent")]
    assert list(sums.values()) == pytest.approx([1] * 4, abs=1e-5)
    assert any(part["part"] == "bond" and float(part["attention"]) > 0 for part in parts)
    assert len(list((tmp_path / "why").glob("molecule_*.png"))) == page.count("<img") == 4
    assert "do not add up to the prediction" in page and "baseline" not in page
    assert "and not to the prediction: method=masking shares that out" in caplog.text


def test_what_predicts_beside_the_atoms_is_said(tmp_path, caplog):
    rows = [f"{'C' * (n % 12 + 1)}{'NO'[n % 2]}{'C' * (n // 12)},{n % 12 + 0.1 * n}" for n in range(120)]
    run = trained(
        tmp_path, ["smiles,y", *rows], {"descriptor_generators": ["physchem"], "tree_generators": ["physchem", "maccs"]}, {}, "trees"
    )
    molecules, parts, _ = explained(run, tmp_path / "why", molecule="CCO")
    assert float(molecules[0]["y predicted"]) == pytest.approx(load(run, device="cpu").predict(["CCO"]).values[0, 0], rel=1e-5)
    assert list(parts[0]) == ["row", "molecule", "part", "atoms", "elements", "attention"]
    assert {part["part"] for part in parts} == {"atom", "bond"}
    assert "It says nothing of the" in caplog.text and "descriptors and boosted trees that predict with them" in caplog.text
