"""`make train` installs what training needs, and `make test` the rest."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def commands_of(target, tmp_path):
    """Return the commands that a target runs in a new checkout, without running them."""
    (tmp_path / "molgcn").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "CMakeLists.txt", "molgcn/extension.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    outside = {key: value for key, value in os.environ.items() if key not in ("ARGS", "MAKEFLAGS", "MAKELEVEL")}  # of `make test`
    return subprocess.run(["make", "--dry-run", target], cwd=tmp_path, env=outside, capture_output=True, text=True, check=True).stdout


@needs_make
def test_training_waits_for_no_extras(tmp_path):
    commands = commands_of("train", tmp_path)
    assert "MOLGCN_INSTRUCTION_SETS=native" in commands and "[dev]" not in commands
    assert commands.rstrip().endswith("python train.py")


@needs_make
def test_tests_have_all_extras_and_every_instruction_set(tmp_path):
    rest = commands_of("test", tmp_path).partition("touch .venv/.trains")[2]
    assert '-e ".[dev]"' in rest and "MOLGCN_INSTRUCTION_SETS" not in rest
    assert rest.rstrip().endswith("python -m pytest")


@needs_make
def test_byte_code_is_kept_also_where_the_environment_forbids_it():
    made = subprocess.run(
        ["make", "--file", "Makefile", "--file", "-", "show"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        input="show:\n\t@env\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH=" in made.stdout and "PYTHONDONTWRITEBYTECODE" not in made.stdout
