import math

import pytest

from molgcn_benchmark.learning import KEY, final_errors, measure
from molgcn_benchmark.results import Table

TINY = {
    "dataset": {"name": "builtin", "targets": ["logp"], "subset": 200, "features": "zinc", "batch_size": 32},
    "model": {"hidden_channels": 8, "num_layers": 2, "norm": None},
    "optimizer": {"lr": 0.01},
    "trainer": {"accelerator": "cpu"},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("learning") / "learning.csv"
    last = list(measure(TINY, "builtin", Table(path, KEY), epochs=2, seeds=[0]))
    assert [(row["backend"], row["epoch"]) for row in last] == [("fused", 2), ("pyg", 2)]
    return path


def test_both_backends_learn_the_same_in_the_same_order(path):
    rows = {(row["backend"], row["epoch"]): row for row in Table(path, KEY).rows}
    assert len(rows) == 4
    for epoch in (1, 2):
        fused, pyg = rows["fused", epoch], rows["pyg", epoch]
        for name in ("train_loss", "val_loss", "val_mae"):
            assert fused[name] == pytest.approx(pyg[name], rel=1e-4)
    assert 0 < rows["fused", 1]["seconds"] < rows["fused", 2]["seconds"]
    assert rows["fused", 2]["train_loss"] < rows["fused", 1]["train_loss"]


def test_a_second_call_trains_what_is_missing(path):
    last = list(measure(TINY, "builtin", Table(path, KEY), epochs=2, seeds=[0, 1]))
    assert [(row["backend"], row["seed"]) for row in last] == [("fused", 1), ("pyg", 1)]
    errors = final_errors(Table(path, KEY).rows)
    assert errors["fused"][2] == errors["pyg"][2] == 2
    assert errors["fused"][:2] == pytest.approx(errors["pyg"][:2], rel=1e-3)


def test_one_seed_has_no_spread():
    row = {"backend": "fused", "epoch": 3, "epochs": 3, "val_mae": 0.5}
    mean, spread, count = final_errors([row, {**row, "epoch": 1, "val_mae": 9.0}])["fused"]
    assert (mean, count) == (0.5, 1) and math.isnan(spread)
