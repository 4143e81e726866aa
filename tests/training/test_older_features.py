"""A run that was trained with an older version of its featuriser goes on, predicts and is evaluated with that version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from run_cases import assert_same_run, train_and_copy

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

pytestmark = pytest.mark.usefixtures("empty_figures")

DEUTERATED, PLAIN = "[2H]c1c([2H])c([2H])c([2H])c([2H])c1[2H]", "c1ccccc1"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.csv"
    molecules = [("[2H]" * (n % 3 == 0)) + "O" + "C" * (n % 9 + 1) + "N" * (n % 2) for n in range(60)]
    path.write_text("smiles,y\n" + "".join(f"{text},{len(text) / 3}\n" for text in molecules))
    return path


def config(small_config, table, cache, features):
    dataset = {"name": "csv", "path": str(table), "targets": ["y"], "subset": None, "features": features, "cache_dir": str(cache)}
    return small_config(dataset=dataset)


def as_it_was_written_then(folder: Path) -> None:
    """Rename the featuriser in the run as a molgcn wrote it that had only one version of it."""
    saved = OmegaConf.load(folder / "config.yaml")
    assert saved.dataset.features == "general:1"
    saved.dataset.features = "general"
    OmegaConf.save(saved, folder / "config.yaml")
    for path in (folder / "checkpoints").glob("*.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        assert (checkpoint["molgcn"]["features"], checkpoint["molgcn"]["features_version"]) == ("general", 1)
        checkpoint["molgcn"]["config"]["dataset"]["features"] = "general"
        checkpoint["molgcn"].pop("trained_on", None)
        torch.save(checkpoint, path)


@pytest.fixture
def runs(small_config, table, tmp_path):
    """Return a run of the first version of "general", and copies of it at interruptions."""
    changed = replace(
        config(small_config, table, tmp_path / "cache", "general:1"), training=TrainingConfig(checkpoint_seconds=0, report=False)
    )
    _, copies = train_and_copy(changed, tmp_path / "whole")
    for folder in (tmp_path / "whole", *copies):
        as_it_was_written_then(folder)
    return tmp_path


def test_it_goes_on_bit_for_bit(runs, small_config, table):
    for number, features in enumerate(("general", None, "general:1")):
        run = runs / f"killed-{number}"
        train(replace(config(small_config, table, runs / "cache", features), resume=str(run)), run)
        assert_same_run(run, runs / "whole")
        assert load_checkpoint(run / "checkpoints" / "last.ckpt")["molgcn"]["features_version"] == 1
        assert OmegaConf.load(run / "config.yaml").dataset.features == "general:1"
    for features in ("zinc", "general:3"):
        run = runs / "killed-3"
        with pytest.raises(UserError, match=r"data of .* has changed"):
            train(replace(config(small_config, table, runs / "cache", features), resume=str(run)), run)


def test_it_predicts_and_is_evaluated_with_its_own(runs, small_config, table):
    old = Ensemble.load([runs / "whole"])
    assert old.inputs.features == "general:1"
    heavy, light = predict_smiles(old, [DEUTERATED, PLAIN], num_workers=0).values[:, 0]
    assert abs(heavy - light) > 1e-3
    result = evaluate(parse(EvaluateConfig, {"ckpt": str(runs / "whole"), "device": "cpu"}))
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(runs / "whole"), "device": "cpu", "split": "all", "dataset": {"path": str(table)}}))
    assert {"test/mae/y"} <= result.metrics.keys()
    assert {"all/mae/y"} <= again.metrics.keys()
    about = metadata(load_module(runs / "whole"))
    assert (about["features"], about["features_version"], about["hydrogens"]) == ("general", "1", "implicit")
    train(config(small_config, table, runs / "cache", "general"), runs / "new")
    new = Ensemble.load([runs / "new"])
    assert new.inputs.features == "general"
    heavy, light = predict_smiles(new, [DEUTERATED, PLAIN], num_workers=0).values[:, 0]
    assert heavy == light
    with pytest.raises(UserError, match="differ in their features: general and general:1"):
        Ensemble.load([runs / "whole", runs / "new"])


def test_data_and_hash_are_those_of_before(tmp_path):
    """The expected values were computed when the first version was the only one."""
    (tmp_path / "x.csv").write_text("smiles,y\n[2H]OC,1\nCCO,2\nc1ccccc1,3\n")
    options = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["y"], "on_error": "skip", "cache_dir": str(tmp_path)}
    molecules, _, data_hash = load_molecules(DatasetConfig(**options, features="general:1"))
    assert data_hash == "7c98f76e3c6f0b142500c77f6ae889304c8fbc33a38a76bf0252779128af89f3"
    assert molecules.content_hash() == "d6f2c76f6ba3276ed15a145b499daf376708b1f082561b1a99200c0ecc05dab4"
    newer, _, other = load_molecules(DatasetConfig(**options, features="general"))
    assert other != data_hash
    assert (len(molecules), len(newer), newer.num_nodes) == (3, 3, 11)
