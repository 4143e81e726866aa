"""Single atoms under batch norm are trained on if a batch can hold two of them, and refused before the first step otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from compiler import needs_extension
from run_cases import assert_same_run, log_of, train_and_copy
from test_captured import on_gpu

from molgcn.config.run import Config
from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.train import train

WAYS = ["plain", pytest.param("direct", marks=needs_extension), pytest.param("captured", marks=pytest.mark.gpu)]


@pytest.fixture
def single_atoms(tmp_path, small_config):
    """Return a configuration of nine training molecules without a bond."""
    train_part = [f"{'CNO'[n % 3]},{n},train" for n in range(9)]
    (tmp_path / "atoms.csv").write_text(
        "\n".join(["smiles,y,part", *train_part, "CCO,1,val", "C,2,val", "N,3,val", "CC,1,test", "O,1,test"])
    )
    source = {
        "name": "csv",
        "path": str(tmp_path / "atoms.csv"),
        "targets": ["y"],
        "split": "column",
        "split_column": "part",
        "subset": None,
    }

    def make(way: str, batch_size: int, **changes: Any) -> Config:
        changes["dataset"] = {**source, "features": "general", "batch_size": batch_size}
        changes["model"] = {"norm": "batch", **changes.get("model", {})}
        if way == "captured":
            return on_gpu(small_config, {"trainer": {"max_epochs": 2}, **changes}, True)
        return small_config(**changes, backend={"name": "fused" if way == "direct" else "pyg"})

    return make


@pytest.mark.parametrize("way", WAYS)
def test_a_single_one_left_over_is_trained_on_with_the_batch_before(way, tmp_path, single_atoms):
    config = single_atoms(way, 4, training={"checkpoint_seconds": 0})
    _, copies = train_and_copy(config, tmp_path / "run")
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 4  # 4 + 5 molecules, twice
    assert [row["step"] for row in log_of(tmp_path / "run") if row["train/loss"]] == ["2", "4"]
    for copy in copies[:2]:
        train(single_atoms(way, 4, training={"checkpoint_seconds": 0}, resume=str(copy)), copy)
        assert_same_run(copy, tmp_path / "run")


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_can_be_one_atom_is_refused_before_training(way, tmp_path, single_atoms):
    with pytest.raises(UserError, match=r"dataset\.batch_size=1 .* row 0 \(C\), .*model\.norm=batch.*model\.norm=layer"):
        train(single_atoms(way, 1), tmp_path / "batch")
    assert log_of(tmp_path / "batch") == []
    assert train(single_atoms(way, 1, model={"norm": "layer"}), tmp_path / "layer").best_loss is not None
