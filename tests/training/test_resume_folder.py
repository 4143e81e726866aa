"""`resume=` continues the right run, and refuses folders that hold none."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from molgcn.config.overrides import quote_texts
from molgcn.data.locks import claimed
from molgcn.errors import UserError
from molgcn.training.members import write_members
from molgcn.training.resume import last_run, prepare_resume, saved_config
from molgcn.training.train import train


def test_resume_finds_the_last_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for age, name in ((100, "old"), (10, "new")):
        path = Path("runs") / name / "checkpoints" / "last.ckpt"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
        (path.parents[1] / "config.yaml").write_text("seed: 3\ntrainer: {max_epochs: 2}\n")
        os.utime(path, (time.time() - age,) * 2)
    assert last_run([Path("runs")]) == Path("runs/new")
    arguments = prepare_resume(["resume=last", "trainer.max_epochs=5"])
    folder = (tmp_path / "runs" / "new").resolve()
    assert f"hydra.run.dir='{folder}'" in arguments
    assert saved_config(folder, ["trainer.max_epochs=5"]) == {"seed": 3, "trainer": {"max_epochs": 5}, "resume": str(folder)}


@pytest.mark.parametrize("place", [".", "fold_0"])
def test_a_run_of_a_newer_molgcn_is_refused(tmp_path, place):
    run = tmp_path / "run"
    for file in ("checkpoints/last.ckpt", "config.yaml", f"{place}/provenance.json"):
        (run / file).parent.mkdir(parents=True, exist_ok=True)
        (run / file).touch()
    for version in ("0.0.1", "9.1"):
        (run / place / "provenance.json").write_text(json.dumps({"versions": {"molgcn": version}}))
        if version == "0.0.1":
            assert prepare_resume([f"resume={run}"])
    with pytest.raises(UserError, match=r"begun by molgcn 9\.1, and this is molgcn .* Install that version, or .* ckpt_path="):
        prepare_resume([f"resume={run}"])


def test_the_last_run_has_no_checkpoint_yet(tmp_path, monkeypatch):
    """An older run is not taken in its place."""
    monkeypatch.chdir(tmp_path)
    for age, path in ((100, "runs/old/config.yaml"), (90, "runs/old/checkpoints/last.ckpt"), (10, "multirun/new/0/config.yaml")):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(b"")
        os.utime(path, (time.time() - age,) * 2)
    with pytest.raises(UserError, match=r"resume=last: multirun/new/0 has no checkpoints/last\.ckpt.* name another one"):
        prepare_resume(["resume=last"])
    for name in ("config.yaml", "overrides.yaml"):  # Hydra's, of a run that has not written its own yet
        Path("runs/newest/.hydra").mkdir(parents=True, exist_ok=True)
        Path("runs/newest/.hydra", name).touch()
    with pytest.raises(UserError, match=r"resume=last: runs/newest has no checkpoints/last\.ckpt"):
        prepare_resume(["resume=last"])
    shutil.rmtree("runs/newest")
    os.utime("runs/old/checkpoints/last.ckpt")
    assert any("runs/old" in argument for argument in prepare_resume(["resume=last"]))


def test_a_fold_is_part_of_its_run(tmp_path, monkeypatch):
    """The run counts as the last one by what any of its trainings has written, and goes on as a whole."""
    monkeypatch.chdir(tmp_path)
    ages = {"alone/checkpoints/last.ckpt": 50, "several/fold_0/member_0/checkpoints/last.ckpt": 90}
    ages |= {"several/fold_0/member_1/checkpoints/last.ckpt": 10, "several/config.yaml": 100}
    for name, age in ages.items():
        path = Path("runs") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    write_members(Path("runs/several"), ["fold_0", "fold_1"])
    write_members(Path("runs/several/fold_0"), ["member_0", "member_1"])
    assert last_run([Path("runs")]) == Path("runs/several")
    folder = (tmp_path / "runs" / "several").resolve()
    assert f"hydra.run.dir='{folder}'" in prepare_resume(["resume=last"])
    with pytest.raises(UserError, match="several already holds a run"):
        prepare_resume(["hydra.run.dir=runs/several"])


def test_a_folder_where_another_process_trains(tmp_path, small_config):
    config = small_config(trainer={"max_epochs": 1})
    with claimed(tmp_path / "run") as free:
        assert free
        for resume in (None, str(tmp_path / "run")):
            with pytest.raises(UserError, match=r"Another process is training in .*run\."):
                train(replace(config, resume=resume), tmp_path / "run")
    train(config, tmp_path / "run")


def test_a_copy_of_a_run_goes_on_by_itself(tmp_path, small_config):
    """Lightning's state of checkpoints names files of the folder in which they were written."""
    one, other = tmp_path / "one", tmp_path / "other"
    train(small_config(trainer={"max_epochs": 1}), one)
    shutil.copytree(one, other)
    before = {path: path.read_bytes() for path in one.rglob("*") if path.is_file()}
    result = train(small_config(trainer={"max_epochs": 3}, resume=str(other)), other)
    assert result.epochs == 3
    assert {path: path.read_bytes() for path in one.rglob("*") if path.is_file()} == before
    shutil.rmtree(one)
    assert train(small_config(trainer={"max_epochs": 4}, resume=str(other)), other).epochs == 4


def test_resume_mistakes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        (["resume=last"], "no run with a checkpoint"),
        (["resume=nowhere"], "no such folder"),
        (["resume=empty"], "nothing to continue from"),
        (["resume=last", "-m"], "does not go with --multirun"),
        (["resume=last", "model=gcn"], "does not go with resume="),
        (["resume=last", "~callbacks.stop_below_lr"], "~callbacks.stop_below_lr does not go with resume=.*null"),
    ):
        with pytest.raises(UserError, match=message):
            prepare_resume(arguments)
    assert prepare_resume(["dataset=qm9"]) == ["dataset=qm9"]


def test_a_run_in_the_home_folder(tmp_path, monkeypatch, small_config):
    """Shells do not replace `~` after a `=`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    train(small_config(trainer={"max_epochs": 1}), tmp_path / "first")
    assert f"resume='{tmp_path / 'first'}'" in prepare_resume(quote_texts(["resume=~/first"]))
    assert f"resume='{tmp_path / 'first'}'" in prepare_resume(["resume='~/first'"])
    parts = {"dataset": {"split": "file", "split_file": "~/first/splits.json"}}
    train(small_config(**parts, ckpt_path="~/first/checkpoints/last.ckpt", trainer={"max_epochs": 0}), tmp_path / "second")
    first, second = ((tmp_path / name / "splits.json").read_bytes() for name in ("first", "second"))
    assert first == second
