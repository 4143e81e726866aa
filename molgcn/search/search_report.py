"""Write the results of a search into its folder: results.csv, sweep.png and experiment/best.yaml."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molgcn.files.json_file import read_json
from molgcn.files.spreadsheet import write_csv
from molgcn.files.whole_file import write_text
from molgcn.files.yaml_file import yaml_text
from molgcn.search.study import was_interrupted
from molgcn.search.sweep import SweepRun, print_runs, table_rows
from molgcn.search.sweep_plot import plot_sweep

if TYPE_CHECKING:
    from optuna import Study

_STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}


def write_reports(study: Study, objective: str, best: dict[str, Any] | None, folder: Path) -> None:
    """Write the table, the plot and the preset of a search, which is the configuration of the best trial, if one is complete."""
    runs = _runs(study, folder)
    write_csv(folder / "results.csv", table_rows(runs, objective, _maximizes(study)))
    space = study.user_attrs["made_of"]["space"]
    logarithmic = [key for key, entry in space.items() if isinstance(entry, dict) and entry.get("log")]
    plot_sweep(
        runs,
        folder / "sweep.png",
        objective,
        maximize=_maximizes(study),
        importances=_importances(study),
        logarithmic=logarithmic,
    )
    if best is not None:
        path = folder / "experiment" / "best.yaml"
        path.parent.mkdir(exist_ok=True)
        trial = study.best_trial
        head = f"# @package _global_\n# Trial {trial.number} of {study.study_name}: {objective} {trial.value:.6g}. Run it with\n"
        write_text(path, f"{head}# {rerun(folder)}\n{yaml_text(best)}")


def print_table(study: Study, objective: str, folder: Path) -> None:
    """Print the trials, the best first, and the command that runs the best again."""
    runs = _runs(study, folder)
    counts = Counter(run.state for run in runs)
    beside = [f"{counts[state]} {state}" for state in ("running", "interrupted") if counts[state]]
    ended = len(runs) - counts["running"] - counts["interrupted"]
    print_runs(", ".join([f"{ended} trial{'s' * (ended != 1)}", *beside]) + f" in {folder}", runs, objective, _maximizes(study))
    if any(run.state == "complete" for run in runs):
        print(f"The best again: {rerun(folder)}", flush=True)


def rerun(folder: Path) -> str:
    """Return the command that trains with the best trial's configuration."""
    return f"python train.py --config-dir='{folder}' experiment=best"


def _maximizes(study: Study) -> bool:
    return study.direction.name == "MAXIMIZE"


def _runs(study: Study, folder: Path) -> list[SweepRun]:
    """Return the trials that have begun; those that are running or were interrupted have no value by which they could be ranked."""
    runs = []
    for trial in study.trials:
        if trial.state.name not in _STATES:
            continue
        path = folder / str(trial.number) / "result.json"
        result = read_json(path) if path.exists() else None
        overrides, note = trial.user_attrs.get("overrides", []), trial.user_attrs.get("error", "")
        state = "interrupted" if was_interrupted(trial) else _STATES[trial.state.name]
        runs.append(SweepRun(str(trial.number), overrides, trial.value, state, result, note))
    return runs


def _importances(study: Study) -> dict[str, float] | None:
    """Return the importance of every key (PED-ANOVA, Watanabe et al., IJCAI 2023); None while there are too few trials to tell."""
    import optuna

    if sum(trial.state.name == "COMPLETE" for trial in study.trials) < 4:
        return None
    try:
        return optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):  # all values are the same
        return None
