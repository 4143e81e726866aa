"""Every file that a command writes into a folder takes its place as a whole; only logs grow line by line."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from molgcn.config.run import parse
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.export import ExportConfig, export
from molgcn.fingerprint import FingerprintConfig, fingerprint
from molgcn.predict import PredictConfig, predict
from molgcn.replicates.run import train_all
from molgcn.search.search import SearchConfig, search
from molgcn.search.sweep import show_sweep
from molgcn.training.trained_on import FILE as INDEX

TEMPORARY = re.compile(r"\.(.+)-[0-9a-f]{32}")
GROWING = re.compile(r"metrics\.csv|\.lock|\..*\.lock|study\.db(-journal)?")  # logs, locks, and the database of a search
_renamed: list[tuple[str, str]] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.rename" and _renamed is not None:
        _renamed.append((str(arguments[0]), str(arguments[1])))


@pytest.fixture(scope="module")
def hook() -> None:
    """Note each rename of this process. An audit hook stays until the process ends."""
    sys.addaudithook(_note)


@pytest.fixture
def renamed(hook: None) -> Iterator[list[tuple[str, str]]]:
    """Return the renames of a test: the old and the new path of each."""
    global _renamed
    _renamed = []
    yield _renamed
    _renamed = None


def train_several(folder: Path, small_config: Any) -> None:
    """Train an ensemble that is calibrated, on a file with a row that is skipped."""
    path = folder.parent / "x.csv"
    lines = [f"{'C' * (n % 12 + 1)}{end},{n}" for n in range(30) for end in ("F", "O", "N")]
    path.write_text("\n".join(["smiles,y", *lines, "xx,1"]) + "\n")
    dataset = {"name": "csv", "path": str(path), "targets": ["y"], "subset": None, "on_error": "skip", "calibration_fraction": 0.2}
    training = {"report": True, "ensemble": 2, "calibration": "auto", "domain_index": "run"}
    config = small_config(dataset=dataset, training=training, trainer={"max_epochs": 1})
    result = train_all(config, folder)
    result.save([])
    assert {"calibration.json", "report.html", "parity.png"} <= {path.name for path in folder.iterdir()}
    assert {"skipped.csv", INDEX} <= {path.name for path in (folder / "member_0").iterdir()}
    show_sweep(folder)


def search_once(folder: Path, small_config: Any) -> None:
    """Run a search of one trial."""
    search(SearchConfig(n_trials=1, params={"seed": [1]}), lambda _: small_config(trainer={"max_epochs": 1}), folder)


def use(folder: Path, small_config: Any) -> None:
    """Evaluate, predict, export and explain with a run, all into its folder."""
    run, device = str(folder), {"device": "cpu"}
    (folder / "in.smi").write_text("CCO\nxx\n")
    reading = {"ckpt": run, "input": str(folder / "in.smi"), "on_error": "skip", **device}
    evaluate(parse(EvaluateConfig, {"ckpt": run, "split": "test", **device}))
    predict(parse(PredictConfig, {**reading, "output": str(folder / "p.csv.gz")}))
    fingerprint(parse(FingerprintConfig, {**reading, "output": str(folder / "f.npz")}))
    explain(parse(ExplainConfig, {**reading, "output": str(folder / "explained"), "image": "png", "target": "logp"}))
    export(ExportConfig(run, str(folder / "model.pt2")))


@pytest.mark.usefixtures("one_thread", "empty_figures")
@pytest.mark.parametrize("command", [train_several, search_once, use], ids=lambda one: one.__name__)
def test_files_take_their_place_as_a_whole(command, renamed, tmp_path, small_config, trained_run):
    folder = tmp_path / "run"
    if command is use:
        shutil.copytree(trained_run.folder, folder)
    before = {*folder.rglob("*"), folder / "in.smi"}
    command(folder, small_config)
    written = {path for path in folder.rglob("*") if path.is_file()} - before
    assert len(written) > 3
    whole = {Path(new) for old, new in renamed if TEMPORARY.fullmatch(Path(old).name)}
    assert sorted(str(path.relative_to(folder)) for path in written - whole if not GROWING.fullmatch(path.name)) == []
