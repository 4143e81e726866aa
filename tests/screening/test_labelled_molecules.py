"""Molecules with isotopes and atom maps have exactly the prediction of the plain ones, descriptors and all."""

from pathlib import Path

import numpy as np
import pytest
import torch

from molgcn.config.run import Config, parse
from molgcn.data.descriptors.generators import generated_names
from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.predict import predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.tasks.registry import build_task
from molgcn.training.module import MoleculeModule

GENERATORS = ["physchem", "rdkit2d", "morgan"]
LABELLED = [
    "[2H]c1c([2H])c([2H])c([2H])c([2H])n1",
    "CN(C)C(=O)C([2H])([2H])[2H]",
    "[CH3:7][C@H:1]([2H])[OH:3]",
    "[13CH3][C@@H:2](F)[15NH2]",
]
PLAIN = ["c1ccccn1", "CN(C)C(=O)C", "CCO", "C[C@@H](F)N"]


@pytest.mark.parametrize("features", FEATURIZERS)
def test_predictions_are_the_same_bit_for_bit(features):
    dataset = {"descriptor_generators": GENERATORS, "features": features}
    config = parse(Config, {"dataset": dataset, "model": {"name": "gine", "bonds": True, "hidden_channels": 8, "num_layers": 2}})
    torch.manual_seed(0)
    featurizer, names = get_featurizer(features), generated_names(GENERATORS)
    module = MoleculeModule(
        config,
        featurizer.num_features,
        build_task("regression", ["y"], [""], 0),
        {"target_mean": torch.zeros(1), "target_std": torch.ones(1)},
        features,
        edge_channels=featurizer.num_bond_features,
        descriptor_names=names,
    )
    module.fit_descriptors(np.random.default_rng(0).normal(size=(10, len(names))).astype(np.float32))
    ensemble = Ensemble([module.eval()], [Path("best.ckpt")])
    first, second = (predict_smiles(ensemble, smiles, on_error="nan", num_workers=0) for smiles in (LABELLED, PLAIN))
    np.testing.assert_array_equal(first.values, second.values)
    assert np.isfinite(first.values[:2]).all()
    assert first.errors == second.errors
