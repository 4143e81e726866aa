"""Molecules get their standard forms where they are read, cached and predicted."""

import csv
import logging

import numpy as np
import pytest
from rdkit import Chem

from molgcn.config.run import Config, parse
from molgcn.data.config import DatasetConfig
from molgcn.data.featurize import featurize_items
from molgcn.data.load import load_molecules
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.data.standardize import LEVELS, item_reader
from molgcn.errors import UserError
from molgcn.export import metadata
from molgcn.predict import PredictConfig, predict
from molgcn.screening.ensemble import Ensemble
from molgcn.training.restore import load_module
from molgcn.training.train import train

FORMS = {  # none, largest_fragment, neutral, tautomer
    "CC(=O)[O-].[Na+]": ("CC(=O)[O-].[Na+]", "CC(=O)[O-]", "CC(=O)O", "CC(=O)O"),
    "[Na]OC(C)=O": ("CC(=O)O[Na]", "CC(=O)[O-]", "CC(=O)O", "CC(=O)O"),
    "C[NH3+].[Cl-]": ("C[NH3+].[Cl-]", "C[NH3+]", "CN", "CN"),
    "Oc1ccccn1.CCO": ("CCO.Oc1ccccn1", "Oc1ccccn1", "Oc1ccccn1", "O=c1cccc[nH]1"),
    "C[N+](C)(C)CC(=O)[O-]": ("C[N+](C)(C)CC(=O)[O-]",) * 4,
    "CCO": ("CCO",) * 4,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["smiles", "sdf"])
def test_each_form_includes_the_ones_before(kind, level):
    read = item_reader(kind, "implicit", False, level)
    for smiles, forms in FORMS.items():
        mol = Chem.MolFromSmiles(smiles)
        found = read(smiles if kind == "smiles" else Chem.MolToMolBlock(mol))
        assert Chem.MolToSmiles(found.mol) == Chem.CanonSmiles(found.smiles) == Chem.CanonSmiles(forms[LEVELS.index(level)])
        assert found.own == (smiles if kind == "smiles" else Chem.MolToSmiles(mol))


@pytest.mark.parametrize("features", ["qm9", "zinc", "general"])
def test_graphs_and_descriptors_are_those_of_the_standard_form(features):
    options = {"features": features, "generators": ("maccs",), "num_workers": 0}
    done = featurize_items(["C[NH3+].Cl", "NC", "[H]OCC.O"], standardize="neutral", **options)
    plain = featurize_items(["CN", "CN", "CCO"], **options)
    assert done.packed.content_hash() == plain.packed.content_hash() and done.smiles is None


def test_what_rdkit_refuses_is_a_row_error(monkeypatch):
    from rdkit.Chem.MolStandardize import rdMolStandardize

    def refuse(mol):
        raise ValueError("no parent fragment.\n")

    monkeypatch.setattr(rdMolStandardize, "FragmentParent", refuse)
    with pytest.raises(InvalidMoleculeError, match=r"it cannot be standardised: no parent fragment$"):
        item_reader("smiles", "implicit", False, "neutral")("CCO")
    with pytest.raises(UserError, match=r"Row 0 .*'CCO' cannot be used: it cannot be standardised"):
        featurize_items(["CCO"], features="general", standardize="neutral")


def config(tmp_path, **options):
    values = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "cache_dir": str(tmp_path / "cache"), "batch_size": 8}
    return {**values, "features": "general", **options}


@pytest.fixture
def salts(tmp_path):
    acids = [f"{'C' * n}C(=O)O" for n in range(1, 25)]
    rows = [(acid, n) for n, acid in enumerate(acids)] + [(f"{acid[:-1]}[O-].[Na+]", n) for n, acid in enumerate(acids)]
    (tmp_path / "a.csv").write_text("smiles,y\n" + "".join(f"{smiles},{y}\n" for smiles, y in rows))
    return [smiles for smiles, _ in rows]


def test_it_is_part_of_the_cache_and_of_what_copies_are(tmp_path, salts):
    plain, _, before = load_molecules(DatasetConfig(**config(tmp_path)))
    neutral, _, after = load_molecules(DatasetConfig(**config(tmp_path, standardize="neutral")))
    again, *_ = load_molecules(DatasetConfig(**config(tmp_path, standardize="neutral")))
    assert before != after and len(set(plain.hashes.tolist())) == 48
    assert np.array_equal(neutral.hashes[:24], neutral.hashes[24:]) and np.array_equal(again.hashes, neutral.hashes)
    assert [*neutral.smiles] == salts
    with pytest.raises(UserError, match=r"dataset.standardize=neutrl is not an option. Did you mean 'neutral'"):
        DatasetConfig(**config(tmp_path, standardize="neutrl"))


def test_predict_does_as_the_training_did(tmp_path, salts, caplog):
    values = {
        "dataset": config(tmp_path, standardize="neutral"),
        "model": {"hidden_channels": 8, "num_layers": 2},
        "training": {"report": False},
        "logger": {"name": "csv"},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    train(parse(Config, values), tmp_path / "run")
    asked = ["CCC(=O)O", "CCC(=O)[O-].[Na+]", "[K+].CCC(=O)[O-]"]
    (tmp_path / "new.smi").write_text("\n".join(asked))
    with Chem.SDWriter(str(tmp_path / "new.sdf")) as writer:
        for smiles in asked:
            writer.write(Chem.MolFromSmiles(smiles))
    found = []
    for ending in ("smi", "sdf"):
        options = {"ckpt": str(tmp_path / "run"), "input": str(tmp_path / f"new.{ending}"), "output": str(tmp_path / f"{ending}.csv")}
        with caplog.at_level(logging.WARNING):
            predict(parse(PredictConfig, {"device": "cpu", **options}))
        with open(tmp_path / f"{ending}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [Chem.CanonSmiles(row["smiles"]) for row in rows] == [*map(Chem.CanonSmiles, asked)]
        found += [row["y predicted"] for row in rows]
    assert len(set(found)) == 1 and "fragments" not in caplog.text
    assert metadata(load_module(tmp_path / "run"))["standardize"] == "neutral"
    values["dataset"]["standardize"] = "none"
    train(parse(Config, values), tmp_path / "other")
    with pytest.raises(UserError, match="differ in their standard forms: none and neutral"):
        Ensemble.load([tmp_path / "run", tmp_path / "other"])
