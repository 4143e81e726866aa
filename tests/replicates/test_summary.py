import json
import math

import pytest
from rich.console import Console

from molgcn.replicates.summary import Summary
from molgcn.training.result import RunResult


def summary(folder, names=("a",), **changes):
    def metrics(value):
        return {f"{part}/{metric}/{name}": value for part in ("train", "val", "test") for metric in ("mae", "rmse", "r2") for name in names}

    values = {
        **{"folder": folder, "best_loss": 0.25, "best_epoch": None, "epochs": 5, "molecules_per_second": 12345.6, "task": "regression"},
        **{"metrics": metrics(0.5), "names": names, "units": ("eV",) * len(names)},
        **{"deviations": metrics(0.0712), "members": {"fold_0": metrics(0.4), "fold_1": metrics(math.nan)}},
    }
    return Summary(**{**values, **changes})


def printed(value):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    value.print(console)
    return [line.replace("│", " ").split() for line in console.export_text().splitlines()]


def test_a_single_target_has_a_row_a_training(tmp_path):
    lines = printed(summary(tmp_path))
    assert ["fold_0", *["0.4"] * 5] in lines and ["fold_1", *["-"] * 5] in lines
    assert ["mean", *["0.5"] * 5] in lines and ["std", *["0.071"] * 5] in lines


def test_several_targets_have_what_trainings_come_to(tmp_path):
    lines = printed(summary(tmp_path, names=("a", "[b]")))
    assert ["[b]", "[eV]", "mean", *["0.5"] * 5] in lines and ["std", *["0.071"] * 5] in lines
    assert not any(line and line[0] == "fold_0" for line in lines)


def test_an_ensemble_has_its_own_error(tmp_path):
    assert ["ensemble", *["0.5"] * 5] in printed(summary(tmp_path, deviations={}))


def test_each_kind_of_target_has_a_table_of_its_own(tmp_path):
    metrics = {"test/mae/a": 0.5, "test/rmse/a": 0.5, "test/roc_auc/b": 0.75, "test/mcc/b": 0.25}
    tasks = {"a": "regression", "b": "classification"}
    given = summary(tmp_path, ("a", "b"), task="mixed", tasks=tasks, metrics=metrics, deviations=metrics, members={"fold_0": metrics})
    lines = printed(given)
    assert ["fold_0", "0.5", "0.5"] in lines and ["fold_0", "0.75", "0.25"] in lines
    assert (given.headers("a"), given.headers("b")) == (["test MAE", "test RMSE"], ["test ROC AUC", "test MCC"])


def test_result_json_is_that_of_a_run_and_more(tmp_path):
    given = summary(tmp_path)
    given.save(["dataset.split=cv"])
    values = json.loads((tmp_path / "result.json").read_text())
    assert values["deviations"]["test/mae/a"] == 0.0712
    assert values["members"]["fold_1"]["test/mae/a"] is None
    loaded = RunResult.load(tmp_path)
    assert (loaded.metrics, loaded.best_loss, loaded.units) == (given.metrics, 0.25, ("eV",))


@pytest.mark.parametrize("text", ["{}", '{"metrics": 3}', "["])
def test_a_damaged_result_is_named(text, tmp_path):
    from molgcn.errors import UserError

    (tmp_path / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"result\.json"):
        RunResult.load(tmp_path)
