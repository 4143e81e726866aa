"""A run without stereochemistry is resumed, predicts and is evaluated without it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from rdkit import Chem
from run_cases import train_and_copy

from molgcn.config.run import parse
from molgcn.config.training import TrainingConfig
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_molecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import metadata
from molgcn.predict import predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.restore import load_module
from molgcn.training.train import train

ISOMERS = ["C[C@H](F)O", "C[C@@H](F)O", "CC(F)O"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.csv"
    molecules = [f"{'C' * (n % 9 + 1)}[C@{'@' * (n % 2)}H](F)O" for n in range(60)]
    path.write_text("smiles,y\n" + "".join(f"{text},{len(text) / 3}\n" for text in molecules))
    return path


def config(small_config, table, cache, stereo):
    dataset = {"name": "csv", "path": str(table), "targets": ["y"], "subset": None, "features": "general", "cache_dir": str(cache)}
    return small_config(dataset=dataset | {"stereo": stereo, "group_duplicates": False})


@pytest.mark.parametrize("features", ["general", "ogb", "qm9"])
def test_the_set_is_another_one_where_something_is_turned_off(features, table, tmp_path):
    options = {"name": "csv", "path": str(table), "targets": ["y"], "features": features, "cache_dir": str(tmp_path)}
    (seen, _, seen_hash), (flat, _, flat_hash) = (load_molecules(DatasetConfig(**options, stereo=stereo)) for stereo in (True, False))
    if features == "qm9":
        assert (flat.features, flat_hash) == (seen.features, seen_hash)
    else:
        assert (seen.features, flat.features) == (features, f"{features}:no_stereo")
        assert flat_hash != seen_hash
        assert len(flat.table) < len(seen.table)
        assert load_molecules(DatasetConfig(**options, stereo=False))[0].features == flat.features  # from the cache


def test_predictions_do_not_depend_on_how_smiles_are_written(small_config, table, tmp_path):
    train(config(small_config, table, tmp_path / "cache", True), tmp_path / "run")
    model, molecule = Ensemble.load([tmp_path / "run"]), Chem.MolFromSmiles("C[C@H](F)[C@@H](O)/C=C/c1cc[nH]c1[C@@]12CC[C@@H](C1)OC2")
    written = [Chem.MolToSmiles(molecule), Chem.MolToSmiles(molecule, kekuleSmiles=True), Chem.MolToSmiles(Chem.AddHs(molecule))]
    written += [Chem.MolToSmiles(molecule, doRandom=True) for _ in range(50)]
    values = predict_smiles(model, written, num_workers=0).values[:, 0]
    assert values.tolist() == pytest.approx([values[0]] * len(written), rel=1e-6)
    (other,) = predict_smiles(model, [written[0].replace("[C@H](F)", "[C@@H](F)")], num_workers=0).values[:, 0]
    assert abs(other - values[0]) > 1e-4


@pytest.mark.usefixtures("blank_figures")
def test_a_run_keeps_it(small_config, table, tmp_path):
    changed = replace(config(small_config, table, tmp_path / "cache", False), training=TrainingConfig(checkpoint_seconds=0, report=False))
    _, copies = train_and_copy(changed, tmp_path / "whole")
    described = load_checkpoint(tmp_path / "whole" / "checkpoints" / "last.ckpt")["molgcn"]
    assert (described["features"], described["features_version"], described["stereo"]) == ("general", 3, False)
    model = Ensemble.load([tmp_path / "whole"])
    assert model.inputs.features == "general:no_stereo"
    assert len(set(predict_smiles(model, ISOMERS, num_workers=0).values[:, 0].tolist())) == 1
    result = evaluate(
        parse(EvaluateConfig, {"ckpt": str(tmp_path / "whole"), "device": "cpu", "split": "all", "dataset": {"path": str(table)}})
    )
    assert "all/mae/y" in result.metrics
    assert metadata(load_module(tmp_path / "whole"))["stereo"] == "none"
    train(replace(changed, resume=str(copies[0])), copies[0])
    assert OmegaConf.load(copies[0] / "config.yaml").dataset.stereo is False
    with pytest.raises(UserError, match=r"trained with dataset\.stereo=False, which cannot become True"):
        train(replace(config(small_config, table, tmp_path / "cache", True), resume=str(copies[1])), copies[1])


def test_otherwise_it_is_seen(small_config, table, tmp_path):
    train(config(small_config, table, tmp_path / "cache", True), tmp_path / "run")
    one, other, unknown = predict_smiles(Ensemble.load([tmp_path / "run"]), ISOMERS, num_workers=0).values[:, 0]
    assert len({one, other, unknown}) == 3
