"""Runs train from an SDF or a list of SMILES."""

import csv
import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from molgcn.config.run import Config, parse
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset, load_molecules
from molgcn.data.sources.csv import open_csv
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.predict import PredictConfig, predict
from molgcn.training.train import train

SMILES = ["C" * (1 + n % 9) + "NO"[n % 2] + "C" * (n // 9) for n in range(36)]


def sdf(records):
    """Return the text of an SDF of SMILES and properties, as RDKit writes it."""
    file = io.StringIO()
    writer = Chem.SDWriter(file)
    for number, (smiles, properties) in enumerate(records):
        mol = Chem.MolFromSmiles(smiles)
        mol.SetProp("_Name", f"molecule {number}")
        for name, value in properties.items():
            mol.SetProp(name, str(value))
        writer.write(mol)
    writer.close()
    return file.getvalue()


def config(path, **options):
    values = {"name": "csv", "path": str(path), "targets": ["y"], "cache_dir": str(path.parent / "cache"), "features": "general"}
    return DatasetConfig(**{**values, **options})


@pytest.fixture
def records(tmp_path):
    """Return records with properties: y, missing in every fifth, a note of two lines, the part and a temperature."""
    parts = ["train", "val", "test"]
    rows = [
        (smiles, {"note": "first\nsecond", **({"y": n / 2} if n % 5 else {}), "part": parts[n % 3], "t": 300 + n})
        for n, smiles in enumerate(SMILES)
    ]
    (tmp_path / "a.sdf").write_text(sdf(rows))
    return rows


@pytest.mark.parametrize("ending", ["sdf", "sdf.gz", "SDF"])
def test_properties_are_targets_descriptors_and_parts(tmp_path, records, ending):
    path = tmp_path / f"b.{ending}"
    text = (tmp_path / "a.sdf").read_bytes()
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text.replace(b"\n", b"\r\n"))
    loaded = load_dataset(config(path, descriptors=["t"], split="column", split_column="part"))
    molecules = loaded.molecules
    np.testing.assert_array_equal(molecules.targets[:, 0], [n / 2 if n % 5 else np.nan for n in range(36)])
    assert molecules.descriptors[:, 0].tolist() == [300 + n for n in range(36)]
    assert [*molecules.smiles] == [*map(Chem.CanonSmiles, SMILES)]
    assert loaded.splits["val"].tolist() == [*range(1, 36, 3)]


def test_it_is_the_same_set_as_the_table(tmp_path, records):
    """Graphs are equal one by one, up to the order in which RDKit writes atoms."""
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["smiles", "y"], *([smiles, row.get("y", "")] for smiles, row in records)])
    from_sdf, from_csv = (load_molecules(config(tmp_path / f"a.{ending}"))[0] for ending in ("sdf", "csv"))
    assert np.array_equal(from_sdf.hashes, from_csv.hashes) and np.array_equal(from_sdf.targets, from_csv.targets, equal_nan=True)


@pytest.mark.parametrize("name", ["a.smi", "a.smiles.gz"])
@pytest.mark.parametrize("header", ["", "smiles y\n"])
def test_lists_of_smiles_and_numbers(tmp_path, name, header):
    text = (header + "CCO 1.5\nCCN\t\n\nCCC -2\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    molecules, *_ = load_molecules(config(tmp_path / name, targets=["y" if header else "name"]))
    assert [*molecules.smiles] == ["CCO", "CCN", "CCC"]
    np.testing.assert_array_equal(molecules.targets[:, 0], [1.5, np.nan, -2])


VALUES = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(SMILES), st.none() | VALUES, st.none() | VALUES), min_size=1, max_size=8))
def test_every_value_comes_back_in_its_record(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("sdf") / "a.sdf"
    path.write_text(sdf([(smiles, {name: repr(v) for name, v in (("y", y), ("z < 1", z)) if v is not None}) for smiles, y, z in rows]))
    expected = np.array([[y, z] for _, y, z in rows], float)
    if np.isnan(expected).all(axis=0).any():
        with pytest.raises(UserError, match=r"has no property|no properties|are missing"):
            open_csv(config(path, targets=["y", "z < 1"])).read()
    else:
        raw = open_csv(config(path, targets=["y", "z < 1"])).read()
        np.testing.assert_array_equal(raw.targets, expected)
        assert raw.rows.tolist() == [*range(len(rows))]


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        ({"y": "high"}, {"targets": None}, r"needs dataset.targets.*no other column of .*a\.sdf holds only numbers"),
        ({}, {"targets": ["Y"]}, r"no property 'Y' \(dataset.targets\). Did you mean 'y'"),
        ({}, {"descriptors": ["ph"]}, r"no property 'ph' \(dataset.descriptors\)"),
        ({}, {"split": "column", "split_column": "fold"}, r"no property 'fold' \(dataset.split_column\)"),
        ({"y": "1,5"}, {}, r"property 'y', record 1 \(counted from 0\): '1,5' is not a number"),
        ({"molecule": "no block"}, {}, r"Record 1 of .*a\.sdf \(counted from 0\).*cannot be used"),
        ({}, {"descriptors": ["note"], "targets": ["y"]}, r"property 'note', record 0 .* is not a number"),
    ],
)
def test_mistakes_name_the_record(tmp_path, change, options, match):
    rows = [("CCO", {"y": 1, "note": "a"}), ("CCN", {"y": change.get("y", 2), "note": "b"}), ("CCC", {"y": 3})]
    text = sdf(rows)
    if "molecule" in change:
        text = text.replace("molecule 1\n     RDKit          2D\n", "molecule 1\n")
    (tmp_path / "a.sdf").write_text(text)
    with pytest.raises(UserError, match=match):
        load_dataset(config(tmp_path / "a.sdf", split_fractions=(1, 1, 1), **{"split": "random", **options}))


def test_a_record_that_is_no_molecule_can_be_left_out(tmp_path):
    text = sdf([("CCO", {"y": 1}), ("CCN", {"y": 2}), ("CCC", {"y": 3})]).replace("molecule 1\n     RDKit          2D\n", "molecule 1\n")
    (tmp_path / "a.sdf").write_text(text)
    molecules, *_ = load_molecules(config(tmp_path / "a.sdf", on_error="skip"))
    assert molecules.rows.tolist() == [0, 2] and molecules.targets[:, 0].tolist() == [1, 3]
    assert [row.row for row in molecules.skipped] == [1]


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file(tmp_path, content):
    (tmp_path / "a.sdf").write_text(content)
    with pytest.raises(UserError, match=r"a\.sdf has no property 'y'.*no properties"):
        load_molecules(config(tmp_path / "a.sdf"))
    with pytest.raises(UserError, match=r"cannot be read.*dataset.path"):
        load_molecules(config(tmp_path / "none.sdf"))


@pytest.mark.usefixtures("blank_figures")
def test_a_run_trains_predicts_and_is_evaluated_on_the_file(tmp_path, records):
    values = {
        "dataset": {"name": "csv", "path": str(tmp_path / "a.sdf"), "targets": ["y"], "descriptors": ["t"], "batch_size": 8},
        "model": {"hidden_channels": 8, "num_layers": 2},
        "logger": {"name": "csv"},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    train(parse(Config, values), tmp_path / "run")
    options = {"ckpt": str(tmp_path / "run"), "input": str(tmp_path / "a.sdf"), "output": str(tmp_path / "p.csv"), "device": "cpu"}
    assert predict(parse(PredictConfig, options)).predicted == 36
    data = EvaluationDataConfig(path=str(tmp_path / "a.sdf"))
    metrics = evaluate(EvaluateConfig(ckpt=str(tmp_path / "run"), dataset=data, device="cpu", output=str(tmp_path / "e"))).metrics
    assert np.isfinite(metrics["all/mae/y"])
