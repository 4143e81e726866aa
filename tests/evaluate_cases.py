"""A run to evaluate, and the configuration of an evaluation."""

import csv
import shutil

import pytest

from molgcn.config.run import parse
from molgcn.evaluate import EvaluateConfig


def config(**values):
    return parse(EvaluateConfig, {"device": "cpu", **values})


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(trained_run, tmp_path):
    """Return a copy of the short run that may be written to."""
    return shutil.copytree(trained_run.folder, tmp_path / "run")
