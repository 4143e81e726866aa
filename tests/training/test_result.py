import csv
import json
import math
import re

import numpy as np
import pytest
from rich.console import Console

from molgcn.data import PackedMolecules
from molgcn.training.result import RunResult, label, results_table, without_nan, write_predictions


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def molecules(smiles, targets):
    return PackedMolecules.from_smiles(smiles, np.array(targets), features="general")


def test_predictions_file(tmp_path):
    packed = molecules(["C", "CC", "CCO"], [[1.5, math.nan], [2.0, 3.0], [-4.25, 1e-9]])[[2, 0]]
    predictions = np.array([[1 / 3, 2.0], [-1.0, math.nan]], np.float32)
    write_predictions(tmp_path / "p.csv", packed, predictions, ("gap", "mu"), ("eV", ""))
    assert rows_of(tmp_path / "p.csv") == [
        ["row", "smiles", "gap [eV]", "gap [eV] predicted", "mu", "mu predicted"],
        ["2", "CCO", "-4.25", "0.3333333", "1e-09", "2"],
        ["0", "C", "1.5", "-1", "", ""],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", " \n@x"])
def test_formulas_are_inert(tmp_path, text):
    expected = "'" + text.replace("\r", "\n")
    packed = PackedMolecules.from_arrays(
        np.array([1]), np.array([0]), np.zeros((2, 0), int), x=np.ones((1, 2)), targets=np.ones((1, 1)), smiles=[text]
    )
    write_predictions(tmp_path / "p.csv", packed, np.ones((1, 1)), (text,), ("",))
    header, row = rows_of(tmp_path / "p.csv")
    assert header[2] == row[1] == expected


def test_label():
    assert (label("gap", "eV"), label("logp", "")) == ("gap [eV]", "logp")


METRICS = {f"{part}/{metric}/{name}": 0.5 for part in ("train", "val", "test") for metric in ("mae", "rmse", "r2") for name in ("a", "[b]")}


def printed(value):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    value.print(console) if isinstance(value, RunResult) else console.print(value)
    return console.export_text()


def result(folder, **changes):
    values = {
        "folder": folder,
        "best_loss": 0.25,
        "best_epoch": 3,
        "epochs": 5,
        "metrics": METRICS,
        "names": ("a", "[b]"),
        "units": ("eV", ""),
        "molecules_per_second": 12345.6,
    }
    return RunResult(**{**values, **changes})


def test_the_table_says_epoch_rate_errors_and_units(tmp_path):
    text = printed(result(tmp_path, metrics={**METRICS, "test/mae/a": 0.123456, "test/rmse/a": 7.0, "test/r2/a": -0.25}))
    assert "best epoch 3 of 5, 12,346 molecules/s" in text
    assert re.search(r"a\s+│ eV\s+│\s+0\.5 │\s+0\.5 │\s+0\.1235 │\s+7 │\s+-0\.25", text)
    assert "[b]" in text  # a name from a file, not markup
    assert str(tmp_path) in text.replace("\n", "")
    assert "no validation" in printed(result(tmp_path, best_epoch=None))


def test_a_metric_that_does_not_exist_is_a_dash(tmp_path):
    text = printed(results_table("t", {"all/mae/y": 1.0, "all/rmse/y": 1.0, "all/r2/y": math.nan}, ["y"], ["eV"], ["all"]))
    assert "nan" not in text.lower()
    assert re.search(r"│\s+1 │\s+1 │\s+- │", text)


def test_result_json_is_json(tmp_path):
    assert without_nan({"a": math.nan, "b": 1.0}) == {"a": None, "b": 1.0}
    result(tmp_path, metrics={**METRICS, "test/r2/a": math.nan}).save(["seed=1"])
    text = (tmp_path / "result.json").read_text()
    assert "NaN" not in text
    values = json.loads(text)
    assert values["metrics"]["test/r2/a"] is None
    assert values["metrics"]["test/mae/a"] == 0.5
    assert (values["best_loss"], values["best_epoch"], values["overrides"]) == (0.25, 3, ["seed=1"])
    assert values["units"] == ["eV", ""]
