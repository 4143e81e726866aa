import pytest

from molgcn.nn.registry import layer_names
from molgcn.training.result import RunResult
from molgcn_benchmark.networks import KEY, error, measure, networks, sheet
from molgcn_benchmark.results import Table

LAYERS = layer_names()  # before other tests register layers
COMMON = ["trainer.max_epochs=1", "trainer.accelerator=cpu", "model.hidden_channels=8", "model.num_layers=2"]


def test_all_networks_are_measured():
    assert {f"model={name}" for name in LAYERS} < set(networks())
    assert "model=gin_plus" in networks()


def test_every_run_once(tmp_path):
    sets = {"few": ["dataset=builtin", "dataset.subset=60"]}
    recipes = ["model=gcn", "model=gin model.dropout=0.1"]
    table = Table(tmp_path / "networks.csv", KEY)
    rows = list(measure(sets, recipes, [0, 1], COMMON, "rmse", tmp_path / "runs", table))
    assert [(row["network"], row["seed"]) for row in rows] == [(recipe, seed) for seed in (0, 1) for recipe in recipes]
    assert all(row["test"] > 0 and row["seconds"] > 0 and row["epochs"] == row["best_epoch"] == 1 for row in rows)
    assert rows[0]["overrides"] == "dataset=builtin dataset.subset=60 " + " ".join(COMMON)
    assert rows[0]["validation"] != rows[2]["validation"]  # another seed
    again = list(measure(sets, recipes, [0, 1], COMMON, "rmse", tmp_path / "gone", Table(tmp_path / "networks.csv", KEY)))
    assert [row["test"] for row in again] == pytest.approx([row["test"] for row in rows], rel=1e-12)
    assert not (tmp_path / "gone").exists()


def test_networks_of_a_set_are_ranked_by_their_mean_validation_error():
    row = {
        "data": "A",
        "metric": "mae",
        "unit": "eV",
        "epochs": 1,
        "parameters": 1200,
        "test": 1.0,
        "seconds": 2.0,
        "overrides": "dataset=a",
    }
    rows = [{**row, "network": name, "validation": value} for name, value in (("one", 0.5), ("one", 0.7), ("two", 0.55))]
    rows.append({**row, "data": "B", "network": "chemprop", "validation": 0.1, "parameters": None})
    assert [line.split(" | ")[1] for line in sheet(rows) if line.startswith(("| A", "| B"))] == ["`two`", "`one`", "`chemprop`"]
    assert "| A, MAE [eV] | `one` | 1,200 | 1 | 2 | 0.600 ± 0.141 | 1.000 ± 0.000 | 2 |" in sheet(rows)


def test_the_error_of_several_targets_is_their_mean(tmp_path):
    metrics = {"val/mae/a": 1.0, "val/mae/b": 3.0, "val/rmse/a": 9.0}
    assert error(RunResult(tmp_path, 0.1, 1, 1, metrics, ("a", "b"), ("", ""), None), "val", "mae") == 2.0
