"""Every command of the README and of the documentation's pages is understood, and the README's do what they say."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

from molgcn.config.overrides import check_overrides, quote_texts
from molgcn.resources import resource

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def commands_of(text: str) -> list[str]:
    """Return the commands of all bash blocks, each as one line without its comment."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.S)
    return [line.split(" #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line]


def trainings(commands: list[str]) -> list[list[str]]:
    """Return the arguments of each command that trains."""
    return [shlex.split(command.replace("<run>", "first"))[2:] for command in commands if command.startswith("python train.py")]


COMMANDS = commands_of(README)
TRAIN = trainings(COMMANDS)
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "data" / "README.md"]
PAGES = [command for page in DOCUMENTS for command in trainings(commands_of(page.read_text()))]
STANDARD = [command for command in PAGES if not any(word.startswith("--config-dir") for word in command)]  # presets of the reader
FAST = [
    "dataset.subset=200",
    "model.hidden_channels=8",
    "model.num_layers=2",
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=2",
    "logger=csv",
]


def test_the_two_commands_come_first():
    assert COMMANDS[:2] == ["make train", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in ("train", "test", "test-all", "lint"))


@pytest.mark.parametrize("arguments", [*TRAIN, *STANDARD], ids=" ".join)
def test_every_training_command_is_understood(arguments):
    check_overrides(quote_texts([argument for argument in arguments if argument != "--help"]), resource("conf"), "train")


@pytest.mark.slow  # each of them has tests of its own
def test_commands_run_in_order(tmp_path, cli):
    """The commands train, resume, predict, fingerprint, explain, evaluate, export and train on one's own file, with fast settings."""
    (tmp_path / "x.csv").write_text("\n".join(["smiles,y", *(f"{'C' * n}O,{n}" for n in range(1, 40))]) + "\n")
    (tmp_path / "new.csv").write_text("smiles\nCCO\nCCCO\n")
    own = next(arguments for arguments in TRAIN if "dataset=csv" in arguments)
    for command in (
        [*FAST, "hydra.run.dir=runs/first"],
        [*own, *FAST[1:], "hydra.run.dir=runs/own"],
        ["resume=last", "trainer.max_epochs=2"],
    ):
        code, out, err = cli(*command)
        assert code == 0, err
    assert "runs/own" in out
    for module in ("molgcn.predict", "molgcn.fingerprint", "molgcn.explain.__main__", "molgcn.evaluate", "molgcn.export"):
        command = next(command for command in COMMANDS if command.startswith(f"python -m {module.removesuffix('.__main__')}"))
        run = "first" if module == "molgcn.export" else "own"  # which predicts together with trees
        code, _, err = cli(*shlex.split(command.replace("<run>", run))[3:], main=import_module(module).main)
        assert code == 0, err
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 3
    assert (tmp_path / "model.onnx").is_file()


def test_the_table_is_what_the_script_makes_of_the_results(monkeypatch):
    script = str(ROOT / "benchmarks" / "readme_table.py")
    monkeypatch.setattr(sys, "argv", [script, "--check"])
    runpy.run_path(script, run_name="__main__")  # exits where they differ
    for document in (README, (ROOT / "docs" / "speed.md").read_text()):
        assert "<!-- made by benchmarks/readme_table.py -->\n" in document
