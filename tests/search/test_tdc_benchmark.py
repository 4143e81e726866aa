"""The sweep over TDC's ADMET group and its table."""

from __future__ import annotations

import csv

import pytest

from molgcn.data.benchmark_sets import TDC_SETS
from molgcn.search.tdc_benchmark import benchmark_rows, expand_sets, show_benchmark


def result(name, value):
    return {"names": [name], "metrics": {f"test/{TDC_SETS[name].metric}/{name}": value, f"test/mcc/{name}": 0.1}}


RESULTS = [result("caco2_wang", 0.30), result("caco2_wang", 0.32), result("ames", 0.90), result("bioavailability_ma", 0.7)]
ROWS = [
    ["caco2_wang", "MAE", "2", "0.310", "0.014", "0.330", "0.276"],
    ["bioavailability_ma", "ROC AUC", "1", "0.700", "-", "-", "-"],
    ["ames", "ROC AUC", "1", "0.900", "-", "0.850", "0.868"],
    ["better than published", "", "", "", "", "2 of 2", "1 of 2"],
]


def test_all_sets_and_seeds():
    given = ["--multirun", "dataset=tdc", "dataset.set=all"]
    sets = f"dataset.set={','.join(TDC_SETS)}"
    assert len(TDC_SETS) == 22
    assert expand_sets(given) == ["--multirun", "dataset=tdc", sets, "seed=1,2,3,4,5"]
    assert expand_sets([*given, "seed=7"]) == ["--multirun", "dataset=tdc", sets, "seed=7"]
    assert expand_sets(given[1:]) == given[1:]  # an error without --multirun


def test_the_table(tmp_path, capsys):
    assert benchmark_rows(RESULTS) == ROWS
    show_benchmark(tmp_path, RESULTS)
    with open(tmp_path / "tdc.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert rows == ROWS and header[3:] == ["mean", "std", "Chemprop-RDKit", "MapLight"]
    lines = (tmp_path / "tdc.md").read_text().splitlines()
    assert lines[2] == "| caco2_wang | MAE | 2 | 0.310 | 0.014 | 0.330 | 0.276 |" and len(lines) == 6
    assert "caco2_wang" in capsys.readouterr().out


def test_no_name_is_cut(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "cyp2c9_substrate_carbonmangels"
    show_benchmark(tmp_path, [{"names": [name], "metrics": {f"test/pr_auc/{name}": 0.4125}}])
    assert "\u2026" not in capsys.readouterr().out


@pytest.mark.parametrize("results", [[], [{"names": ["gap"], "metrics": {"test/mae/gap": 1.0}}]])
def test_other_runs_have_none(tmp_path, results):
    show_benchmark(tmp_path, results)
    assert not [*tmp_path.iterdir()]
