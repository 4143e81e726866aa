import json
import math
import re

from rich.console import Console

from molgcn.metrics.comparison import without_nan
from molgcn.training.result import RunResult

METRICS = {f"{part}/{metric}/{name}": 0.5 for part in ("train", "val", "test") for metric in ("mae", "rmse", "r2") for name in ("a", "[b]")}


def printed(value):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    value.print(console)
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
