"""The built wheel works in a new environment and another directory."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_wheel_trains_from_another_directory(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("molgcn-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    # the dependencies of this environment, without this checkout's own editable install
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "--force-reinstall", str(wheel)], check=True, capture_output=True)
    (tmp_path / "elsewhere").mkdir()
    program = "import molgcn, molgcn._cpu, molgcn._launch; from molgcn.cli import main; print(molgcn.__file__); main()"
    options = ["dataset.subset=200", "model.num_layers=2", "trainer.max_epochs=1", "logger=csv", "hydra.run.dir=run"]
    done = subprocess.run([python, "-c", program, *options], cwd=tmp_path / "elsewhere", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "env") in done.stdout
    assert (tmp_path / "elsewhere" / "run" / "predictions_test.csv").is_file()
    names = subprocess.run([python, "-m", "zipfile", "-l", str(wheel)], check=True, capture_output=True, text=True).stdout
    for name in ("molgcn/conf/train.yaml", "molgcn/_molecules/molecules.csv", "molgcn/_cuda/", "molgcn/py.typed"):
        assert name in names
