"""What cannot be printed ends no training."""

import os
import sys
from contextlib import contextmanager

import pytest

from molgcn.cli import main
from molgcn.process.output import output_may_be_lost
from molgcn.training.result import RunResult


@contextmanager
def closed_pipe(monkeypatch):
    """Let standard output and error be a pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        yield stream


def test_a_reader_that_has_left(monkeypatch):
    with closed_pipe(monkeypatch) as stream:
        with output_may_be_lost():
            for number in range(3):
                print("epoch", number, flush=True)
                print("loss", number, file=sys.stderr)
            print("a line that is flushed when the stream is closed")
        assert sys.stdout is stream


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk(monkeypatch):
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with output_may_be_lost():
            print("epoch 1", flush=True)


def test_characters_that_cannot_be_shown(monkeypatch, tmp_path):
    with open(tmp_path / "log", "w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with output_may_be_lost():
            print("IC50 in µM")
    assert (tmp_path / "log").read_text() == "IC50 in ?M\n"


def test_a_training_without_a_reader_ends_well(monkeypatch, tmp_path, cli):
    def train(config, folder):
        print("epoch 1", flush=True)
        return RunResult(folder, 0.5, 1, 1, {"test/mae/y": 0.5}, ("y",), ("",), None)

    with closed_pipe(monkeypatch):
        code, *_ = cli(f"hydra.run.dir='{tmp_path / 'run'}'", main=lambda: main(train))
    assert code == 0
    assert (tmp_path / "run" / "result.json").exists()
