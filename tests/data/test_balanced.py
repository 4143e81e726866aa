"""Runs can have epochs with equally many molecules of each class."""

from dataclasses import replace

import numpy as np
import pytest
from run_cases import assert_same_run, train_and_copy

from molgcn.data import PackedMolecules
from molgcn.data.loader import PackedLoader
from molgcn.errors import UserError
from molgcn.training.train import train


@pytest.mark.parametrize("size", [3, 70])
def test_a_batch_may_be_the_largest_molecule_many_times(size):
    smiles = ["C"] * 30 + ["C" * size]
    targets = np.array([[0.0]] * 30 + [[1.0]])
    molecules = PackedMolecules.from_smiles(smiles, targets, features="zinc", num_workers=0)
    loader = PackedLoader(molecules, 8, classes=targets[:, 0])
    for _ in range(3):
        seen = np.concatenate([batch.targets[:, 0].numpy() for batch in loader])
        assert len(seen) == 31 and seen.sum() == 15
    few = PackedLoader(molecules[[0, 30]], 2, classes=np.array([np.nan, 1.0]))
    (batch,) = few
    assert batch.num_nodes == 2 * size


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("balanced")
    rows = "".join(f"{'C' * (1 + row % 12)}{'O' * (row % 3)},{int(row % 9 == 0)}\n" for row in range(150))
    (folder / "mine.csv").write_text(f"smiles,y\n{rows}")
    dataset = {"name": "csv", "path": str(folder / "mine.csv"), "targets": ["y"], "subset": None, "cache_dir": str(folder / "cache")}
    config = small_config(
        dataset={**dataset, "sampling": "balanced", "group_duplicates": False, "batch_size": 16},
        backend={"name": "fused"},
        training={"checkpoint_seconds": 0},
    )
    _, copies = train_and_copy(config, folder / "run")
    return folder, copies, config


def test_a_killed_run_goes_on_bit_for_bit(run):
    folder, copies, config = run
    train(replace(config, resume=str(copies[0])), copies[0])
    assert_same_run(copies[0], folder / "run")


def test_numbers_have_no_classes(run, tmp_path):
    config = run[-1]
    with pytest.raises(UserError, match=r"dataset\.sampling=balanced does not go with task=regression: .*single target.*dataset\.weights"):
        train(replace(config, task="regression"), tmp_path)
