"""Keys that a resumed run cannot change are refused before anything is read or written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.resume import saved_config
from molgcn.training.train import train


@pytest.fixture
def files():
    """Return a function that lists a run's files with their contents."""
    return lambda folder: {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FIRST = [
    ({"model": {"hidden_channels": 16}}, r"trained with model\.hidden_channels=8, which cannot become 16 .*network"),
    ({"training": {"loss": "mse"}}, r"training\.loss=l1, which cannot become mse .*best loss.*ckpt_path="),
    ({"dataset": {"split_seed": 2}}, r"dataset\.split_seed=0, which cannot become 2 .*same molecules in the same parts"),
    ({"optimizer": {"lr": 1e-4}}, r"trained with optimizer\.lr=0\.001, which cannot become 0\.0001 .*ckpt_path="),
]
REST = [
    ({"model": {"pool": "sum"}}, r"model\.pool=mean, which cannot become sum"),
    ({"training": {"ema_decay": 0.9}}, "without a moving average"),
    ({"training": {"huber_delta": 2.0}}, r"training\.huber_delta=1\.0, which cannot become 2\.0"),
    ({"training": {"accumulate_batches": 2}}, r"training\.accumulate_batches=1"),
    ({"trainer": {"limit_val_batches": 2}}, r"trainer\.limit_val_batches=None, which cannot become 2"),
    ({"dataset": {"batch_size": 20}}, r"dataset\.batch_size=32"),
    ({"dataset": {"split": "scaffold"}}, r"dataset\.split=random, which cannot become scaffold"),
    ({"dataset": {"split_fractions": [0.6, 0.2, 0.2]}}, r"dataset\.split_fractions="),
    ({"dataset": {"subset": 301}}, r"dataset\.subset=300, which cannot become 301"),
    ({"dataset": {"targets": ["tpsa"]}}, r"dataset\.targets=\['logp'\]"),
    ({"scheduler": {"name": "plateau"}}, r"scheduler\.name=cosine, which cannot become plateau"),
    ({"seed": 1}, "seed=0, which cannot become 1"),
    ({"ckpt_path": "."}, "ckpt_path=None, which cannot become"),
]


@pytest.mark.parametrize("cases", [FIRST, pytest.param(REST, marks=pytest.mark.slow)], ids=["first", "rest"])
def test_what_cannot_be_changed_leaves_the_run_as_it_was(cases, tmp_path, small_config, files):
    train(small_config(), tmp_path)
    before = files(tmp_path)
    for changes, message in cases:
        changes = {**changes, "trainer": {"max_epochs": 3, **changes.get("trainer", {})}}
        with pytest.raises(UserError, match=message):
            train(small_config(**changes, resume=str(tmp_path)), tmp_path)
        assert files(tmp_path) == before
    train(small_config(resume=str(tmp_path), trainer={"max_epochs": 3}, dataset={"num_workers": 1}), tmp_path)
    assert saved_config(tmp_path, [])["trainer"]["max_epochs"] == 3


def test_a_run_goes_on_with_the_split_that_it_saved(tmp_path, small_config):
    """This holds even if an earlier version drew another split from the same keys, or lacked some of today's keys."""
    config, split = small_config(trainer={"max_epochs": 1}), tmp_path / "splits.json"
    train(config, tmp_path)
    saved = json.loads(split.read_text())
    saved["val"], saved["test"] = saved["test"], saved["val"]
    split.write_text(json.dumps(saved))
    keys = yaml.safe_load((tmp_path / "config.yaml").read_text())
    del keys["dataset"]["group_duplicates"], keys["dataset"]["duplicates"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(keys))
    module = train(parse(Config, saved_config(tmp_path, [])), tmp_path)
    assert json.loads(split.read_text()) == saved
    swapped = train(small_config(dataset={"split": "file", "split_file": str(split)}, trainer={"max_epochs": 1}), tmp_path / "again")
    assert module.metrics["test/mae/logp"] == swapped.metrics["test/mae/logp"]


@pytest.fixture
def csv_config(tmp_path, small_config):
    """Return a configuration of a CSV file that a test may change."""
    lines = [f"{'C' * (1 + n % 30)},{n % 30}" for n in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,y", *lines]))
    data = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "subset": None, "cache_dir": str(tmp_path / "cache")}
    return small_config(dataset=data, trainer={"max_epochs": 1})


def test_changed_data_is_refused_and_moved_data_is_not(tmp_path, csv_config):
    train(csv_config, tmp_path / "run")
    resumed = replace(csv_config, resume=str(tmp_path / "run"))
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    moved = replace(resumed, dataset=replace(csv_config.dataset, path=str(tmp_path / "b.csv")))
    assert train(moved, tmp_path / "run").epochs == 1
    lines = (tmp_path / "b.csv").read_text().splitlines()
    for changed in ([*lines, "CCO,1"], lines[:-9]):  # the run's split names rows that the shorter one does not have
        (tmp_path / "a.csv").write_text("\n".join(changed))
        with pytest.raises(UserError, match="has changed since the run was interrupted"):
            train(resumed, tmp_path / "run")


@pytest.mark.parametrize("left", ["shorter", "nothing"])
def test_a_log_that_lacks_rows_is_refused(left, tmp_path, small_config):
    train(small_config(trainer={"max_epochs": 1}), tmp_path)
    path = tmp_path / "metrics.csv"
    path.write_bytes(path.read_bytes()[:-20]) if left == "shorter" else path.unlink()
    with pytest.raises(UserError, match=r"metrics\.csv has [\d,]+ bytes, of [\d,]+ .*rows are missing\. Restore the file"):
        train(small_config(resume=str(tmp_path)), tmp_path)


@pytest.mark.parametrize("key", ["loops", "optimizer_states", "metrics_csv_size"])
def test_a_checkpoint_that_lacks_a_part_is_refused(key, tmp_path, small_config):
    train(small_config(trainer={"max_epochs": 1}), tmp_path)
    path = tmp_path / "checkpoints" / "last.ckpt"
    checkpoint = load_checkpoint(path)
    del checkpoint[key]
    write(checkpoint, path)
    with pytest.raises(UserError, match=rf"last\.ckpt lacks {key}, without which a run cannot go on"):
        train(small_config(resume=str(tmp_path)), tmp_path)
