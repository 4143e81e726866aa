"""`python -m molgcn.predict` has the right messages, uses standard input and output, and can be ended from outside."""

import csv
import gzip
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from predictions import config, expected
from waiting import wait_until

from molgcn.errors import UserError
from molgcn.predict import main, predict


def test_the_command(trained_run, cli, tmp_path):
    folder = tmp_path / "a run, with (odd) = name"
    shutil.copytree(trained_run.folder, folder)
    (tmp_path / "new molecules.csv").write_text("smiles\nCCO\nC1CC\n")
    arguments = [f"ckpt={folder.name}/checkpoints/best.ckpt", "input=new molecules.csv", "output=my predictions.csv"]
    before = {*tmp_path.iterdir()}
    code, _, err = cli(*arguments, main=main)
    assert code == 2
    assert "Row 1 of new molecules.csv" in err
    assert "Traceback" not in err
    code, out, err = cli(*arguments, "on_error=nan", main=main)
    assert code == 0, err
    assert "1 prediction (logp, tpsa in A^2) in my predictions.csv" in err
    assert out == ""
    assert {*tmp_path.iterdir()} - before == {tmp_path / "my predictions.csv"}  # and no folders or logs of Hydra's
    code, _, err = cli("ckpt_path=x", main=main)
    assert code == 2
    assert "Did you mean ckpt?" in err


def command(*arguments):
    return [sys.executable, "-m", "molgcn.predict", *arguments]


@pytest.mark.parametrize(
    ("packed", "form", "text"),
    [pytest.param(False, "csv", "x,smiles\n1,CCO\n2,C1\n", marks=pytest.mark.slow), (True, "smi", "CCO 1\nC1 2\n")],
)
def test_standard_output_carries_rows_only(trained_run, tmp_path, packed, form, text):
    data = gzip.compress(text.encode()) if packed else text.encode()
    arguments = [f"ckpt={trained_run.folder}", "input=-", "output=-", f"format={form}", "on_error=skip", "device=cpu"]
    done = subprocess.run(command(*arguments), input=data, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr.decode()
    lines = list(csv.reader(done.stdout.decode().splitlines()))
    assert len(lines) == 2
    assert lines[1][:-2] == (["1", "CCO"] if form == "csv" else ["CCO", "1"])
    np.testing.assert_allclose([float(cell) for cell in lines[1][-2:]], expected(trained_run, ["CCO"])[0], rtol=2e-5)
    assert "Row 1 is left out: 'C1': it is not a SMILES" in done.stderr.decode()
    assert list(tmp_path.iterdir()) == []


def test_standard_input_that_is_closed(trained_run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # Python sets this after <&-
    with pytest.raises(UserError, match="standard input is closed"):
        predict(config(ckpt=str(trained_run.folder), input="-", output=str(tmp_path / "p.csv")))


@pytest.mark.slow
def test_a_reader_that_leaves_and_an_interrupt(trained_run, tmp_path):
    (tmp_path / "new.smi").write_text("CCO\n" * 200_000)
    arguments = [f"ckpt={trained_run.folder}", "input=new.smi", "output=-", "num_workers=2", "device=cpu", "batch_size=256"]
    left = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True)
    assert left.stdout.readline().startswith("smiles,name,")
    left.stdout.close()
    assert left.wait(120) == 1
    assert "Error" not in left.stderr.read()
    stopped = subprocess.Popen(
        command(*arguments[:2], "output=p.csv", "device=cpu"),
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # jobs in a shell's background ignore it
    )
    wait_until(lambda: list(tmp_path.glob(".p.csv-*")))
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(120) == 130
    said = stopped.stderr.read()
    assert "Interrupted." in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["new.smi"]
