"""benchmarks/timed_fit.py passes the arguments on to the command that it times."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "timed_fit.py"


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs the script as the command line does and undoes its changes."""
    from lightning.pytorch import Trainer

    def script(*arguments):
        monkeypatch.setattr(Trainer, "fit", Trainer.fit)
        monkeypatch.setattr(sys, "path", ["", *sys.path])
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        runpy.run_path(str(SCRIPT), run_name="__main__")

    return script


def test_it_says_what_it_takes(run, capsys):
    with pytest.raises(SystemExit) as exit:
        run("--help")
    assert exit.value.code == 0 and "module:function" in capsys.readouterr().out


def test_the_command_gets_its_own_arguments(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "a_command.py").write_text("import sys\ndef main(): print(sys.argv)\n")
    monkeypatch.syspath_prepend(tmp_path)
    run(tmp_path / "o.json", "a_command:main", "train", "--epochs", 1, "-h")
    assert capsys.readouterr().out.strip() == "['a_command:main', 'train', '--epochs', '1', '-h']"
    assert json.loads((tmp_path / "o.json").read_text()) == {"seconds": 0.0, "processor_seconds": 0.0, "epoch_seconds": []}
