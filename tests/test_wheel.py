"""A release works: the source archive, and the wheels that are built of it with and without a compiler, in another directory."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NATIVE = {"MOLGCN_INSTRUCTION_SETS": "native"}  # compiles in half the time
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
TRAINS = ["dataset.subset=200", "model.num_layers=2", "trainer.max_epochs=1", "trainer.accelerator=cpu", "logger=csv", "hydra.run.dir=run"]

pytestmark = pytest.mark.slow


def run(*command, cwd=None, **environment):
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Build the source archive."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", folder, ROOT)
    (archive,) = folder.glob("molgcn-*.tar.gz")
    return archive


def test_the_source_archive_has_what_a_build_needs_and_no_more(archive):
    with tarfile.open(archive) as file:
        names = {Path(name).parts[1] for name in file.getnames()}
    assert names >= {
        "molgcn",
        "conf",
        "cpu",
        "cuda",
        "data",
        "native",
        "CMakeLists.txt",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "PKG-INFO",
    }
    assert not names & {"tests", "benchmarks", "notebooks", "docs", "runs", "build"}


@pytest.mark.parametrize("environment", [NATIVE, NO_COMPILER], ids=["compiled", "without a compiler"])
def test_a_wheel_of_it_trains_from_another_directory(archive, tmp_path, environment):
    compiled = environment is NATIVE
    pip = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path / "dist", archive, **environment)
    (wheel,) = (tmp_path / "dist").glob("molgcn-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (about,) = (message_from_bytes(file.read(name)) for name in names if name.endswith(".dist-info/METADATA"))
    assert (about["Version"], {*about.get_all("Provides-Extra")}) == (PROJECT["version"], PROJECT["optional-dependencies"].keys())
    assert any(name.startswith("molgcn/_cpu.") for name in names) == compiled
    for name in ("molgcn/_resources/conf/train.yaml", "molgcn/_resources/data/molecules.csv", "molgcn/_resources/cuda/", "molgcn/py.typed"):
        assert any(one.startswith(name) for one in names), name

    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    # the dependencies of this environment, without this checkout's own editable install
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--force-reinstall", wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert str(tmp_path / "env") in run(python, "-c", "import molgcn; print(molgcn.__file__)", cwd=elsewhere)
    run(tmp_path / "env" / "bin" / "molgcn", *TRAINS, cwd=elsewhere)
    assert (elsewhere / "run" / "predictions_test.csv").is_file()
    (elsewhere / "new.csv").write_text("smiles\nCCO\n")
    run(python, "-m", "molgcn.predict", "ckpt=run", "input=new.csv", "output=predictions.csv", cwd=elsewhere)
    assert len((elsewhere / "predictions.csv").read_text().splitlines()) == 2
    fused = subprocess.run(
        [python, "-m", "molgcn", *TRAINS, "backend=fused", "hydra.run.dir=fused"], cwd=elsewhere, capture_output=True, text=True
    )
    assert fused.returncode == (0 if compiled else 2)
    assert compiled or "backend=fused has no C++ extension for this machine" in fused.stderr
