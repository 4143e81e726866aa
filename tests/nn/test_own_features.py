"""Networks standardise own features, the last columns, alike on all backends: as if they were standardised before."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from compiler import needs_extension
from fused_cases import SMILES, relative

from molgcn.data import PackedMolecules
from molgcn.data.components import join_components
from molgcn.data.featurize import featurize_items
from molgcn.data.own_features import with_own_features
from molgcn.data.row_matrices import RowMatrices
from molgcn.nn import MoleculeNet
from molgcn.nn.encoders import Scale

CASES = {
    "gcn": {"conv": "gcn"},
    "gcn embedded": {"conv": "gcn", "embed": True},
    "gine": {"conv": "gine", "residual": True},
    "gine embedded": {"conv": "gine", "embed": True, "embed_bonds": True, "rwse": 3, "rwse_dim": 4},
    "gcn_edge": {"conv": "gcn_edge"},
    "dmpnn": {"conv": "dmpnn"},
}


def molecules_with(coded):
    """Return molecules with own features that repeat, so that rows are codes, or do not."""
    plain = PackedMolecules.of(featurize_items(8 * SMILES, features="general", num_workers=0, bond_numbers=True).packed)
    rng = np.random.default_rng(0)
    draw = (lambda rows, width: rng.integers(3, 5, (rows, width))) if coded else (lambda rows, width: rng.normal(50, 9, (rows, width)))
    atoms = RowMatrices.of([draw(count, 2) for count in plain.num_nodes_per_graph], ["a", "b"])
    bonds = RowMatrices.of([draw(count, 1) for count in np.diff(plain.edge_ptr) // 2], ["c"])
    molecules, _ = with_own_features(plain, atoms, bonds)
    assert molecules is not None and (molecules.edge_table is not None) == coded
    return molecules


def fit(model, molecules):
    for encoder in (model, *model.encoders):
        encoder.atom_scale.fit(molecules.node_features()[:, -2:])
        if encoder.bond_scale is not None:
            encoder.bond_scale.fit(molecules.edge_features()[:, -1:])


def network(molecules, case, backend, scaled=True):
    bonds = molecules.num_edge_features if CASES[case]["conv"] != "gcn" else None
    own = {"scaled_channels": 2, "scaled_edge_channels": 0 if bonds is None else 1} if scaled else {}
    torch.manual_seed(0)
    return MoleculeNet(molecules.num_features, 16, 2, 2, edge_channels=bonds, backend=backend, **CASES[case], **own).double()


def standardized(molecules, bonds):
    """Return the set with rows whose own columns were standardised by NumPy in float64."""

    def scaled(rows, own):
        rows = rows.astype(np.float64)
        rows[:, -own:] = (rows[:, -own:] - rows[:, -own:].mean(0)) / rows[:, -own:].std(0)
        return rows

    batch = molecules.batch(slice(None)).double()
    batch.x = torch.from_numpy(scaled(molecules.node_features(), 2))
    if bonds:
        batch.edge_attr = torch.from_numpy(scaled(molecules.edge_features(), 1))
        batch.edge_code = batch.edge_table = None
    return batch


@needs_extension
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_backends_see_standardised_features(case, coded):
    molecules = molecules_with(coded)
    expected_model = network(molecules, case, "reference", scaled=False)
    expected = expected_model(standardized(molecules, expected_model.edge_channels is not None))
    expected.square().sum().backward()
    for backend in ("reference", "pyg", "fused"):
        model = network(molecules, case, backend)
        fit(model, molecules)
        found = model(molecules.batch(slice(None)).double())
        found.square().sum().backward()
        assert relative(found, expected) < 1e-6  # mean and deviation were rounded to float32
        for (name, mine), (_, theirs) in zip(model.named_parameters(), expected_model.named_parameters(), strict=True):
            assert relative(mine.grad, theirs.grad) < 1e-5, name


def test_each_components_encoder_has_the_scale():
    molecules = molecules_with(False)
    pairs = replace(join_components([molecules, molecules[::-1]], ["a", "b"]), atom_feature_names=molecules.atom_feature_names)
    model = MoleculeNet(
        molecules.num_features, 8, 2, 1, conv="gcn", num_components=2, shared_encoder=False, scaled_channels=2, backend="reference"
    )
    before = model(pairs.batch(slice(None)))
    fit(model, molecules)
    assert not torch.allclose(before, model(pairs.batch(slice(None))))
    assert torch.equal(model.encoders[0].atom_scale.mean, model.atom_scale.mean) and model.atom_scale.mean[-2:].min() > 40


def test_only_the_last_columns_are_fitted():
    scale = Scale(3)
    scale.fit(np.array([[1.0], [3.0]], np.float32))
    assert scale.mean.tolist() == [0, 0, 2] and scale.std.tolist() == [1, 1, 1]
    assert scale(torch.tensor([[5.0, 6.0, 4.0]])).tolist() == [[5, 6, 2]]
