"""Files from strangers cannot run code or inject text, in all ways that are known."""

import gzip
import io
import os
import pickle
import shutil
import tarfile
import tracemalloc
import zipfile

import pytest
import torch
import yaml

from molgcn.config.run import parse
from molgcn.data.archive import WrongContentError, unpack
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.predict import PredictConfig, predict
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.restore import load_module


class Touch:
    """An object that makes a file when it is unpickled without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


@pytest.fixture
def trap(tmp_path):
    """Return a file that would exist if code had run, after checking that the bait works."""
    os.system(f"touch '{tmp_path / 'proof'}'")
    assert (tmp_path / "proof").exists()
    return tmp_path / "was run"


@pytest.mark.parametrize("kind", ["pickle", "torch", "torch inside", "old torch"])
def test_a_malicious_pickle(trained_run, tmp_path, trap, kind):
    path, bait = tmp_path / "x.ckpt", Touch(trap)
    if kind == "pickle":
        path.write_bytes(pickle.dumps(bait))
    else:
        content = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)
        if kind == "torch inside":
            content["molgcn"]["config"]["model"]["hidden_channels"] = bait
        else:
            content = {"molgcn": bait}
        torch.save(content, path, _use_new_zipfile_serialization=kind != "old torch")
    for use in (load_checkpoint, load_module):
        with pytest.raises(UserError, match=r"x.ckpt is not a readable checkpoint"):
            use(path)
    (tmp_path / "a.smi").write_text("C\n")
    with pytest.raises(UserError, match="not a readable checkpoint"):
        predict(parse(PredictConfig, {"ckpt": str(path), "input": str(tmp_path / "a.smi"), "output": str(tmp_path / "p.csv")}))
    assert not trap.exists()


@pytest.mark.parametrize("section", ["", "model", "optimizer", "dataset", "training", "trainer"])
def test_a_target_in_a_checkpoint_is_not_called(trained_run, tmp_path, trap, section):
    content = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)
    config = content["molgcn"]["config"]
    (config[section] if section else config).update({"_target_": "os.system", "_args_": [f"touch '{trap}'"]})
    torch.save(content, tmp_path / "x.ckpt")
    if section == "trainer":  # Lightning's options, which nothing reads to predict
        load_module(tmp_path / "x.ckpt")
    else:
        with pytest.raises(UserError, match="_target_"):
            load_module(tmp_path / "x.ckpt")
    assert not trap.exists()


@pytest.mark.parametrize("what", [*(pytest.param(what, marks=pytest.mark.slow) for what in ("target", "trainer target")), "resolver"])
def test_a_malicious_config_of_a_run_that_is_resumed(trained_run, cli, tmp_path, trap, what, monkeypatch, blank_figures):
    shutil.copytree(trained_run.folder, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    if what == "resolver":
        config["logger"]["project"] = "${oc.env:SECRET}"
    else:
        section = config["trainer" if what == "trainer target" else "model"]
        section.update({"_target_": "os.system", "_args_": [f"touch '{trap}'"]})
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("SECRET", "the secret")
    code, out, err = cli("resume=run", "trainer.max_epochs=3")
    if what == "resolver":
        assert code == 0, err
        texts = [file.read_text(errors="replace") for file in (tmp_path / "run").rglob("*") if file.is_file()]
        assert not any("the secret" in text for text in [*texts, out, err])
    else:
        assert code == 2
        assert "_args_ is not a" in err
        assert "Traceback" not in err
    assert not trap.exists()


@pytest.mark.parametrize("key", ["+model._target_", "+dataset._target_", "++optimizer._target_", "+trainer._target_"])
def test_a_target_on_the_command_line(cli, trap, key):
    code, _, err = cli(f"{key}=os.system", f"{key.replace('_target_', '_args_')}=[\"touch '{trap}'\"]", "logger=csv")
    assert code == 2
    assert "Traceback" not in err
    assert not trap.exists()


@pytest.mark.parametrize("name", ["../a.csv", "/tmp/../a.csv", "x/../../a.csv"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_member_outside_the_folder(tmp_path, kind, name):
    """A member with the expected name is unpacked into the folder, whatever its path; no other is unpacked."""
    archive, folder = tmp_path / "in" / "archive", tmp_path / "in" / "out"
    folder.mkdir(parents=True)
    members = {name: b"1", "../evil.csv": b"2"}
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            for member, content in members.items():
                file.writestr(member, content)
    else:
        with tarfile.open(archive, "w") as file:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    assert unpack(archive, ["a.csv"], folder) == [folder / "a.csv"]
    with pytest.raises(WrongContentError):
        unpack(archive, ["b.csv"], folder)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == ["in/archive", "in/out/a.csv"]


def test_a_column_of_scripts_through_the_report(trained_run, tmp_path):
    """Scripts are refused as SMILES, and are shown as text in names of columns and files."""
    script = "<script>alert(1)</script>"
    data = tmp_path / f"{script.replace('/', '')}.csv"
    data.write_text(f"smiles,{script},b\nCCO,1,2\nc1ccccc1,2,3\n{script},3,4\n")
    settings = {"path": str(data), "targets": [script, "b"], "on_error": "skip", "cache_dir": str(tmp_path / "cache")}
    values = {"ckpt": str(trained_run.folder), "output": str(tmp_path / "out"), "dataset": settings, "device": "cpu"}
    evaluate(parse(EvaluateConfig, values))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert script in (tmp_path / "out" / "skipped.csv").read_text()


def test_a_row_of_hundreds_of_megabytes_in_a_small_file(trained_run, tmp_path):
    """The row is refused before it is in memory, whatever on_error says."""
    with gzip.open(tmp_path / "new.csv.gz", "wb", 1) as file:
        file.write(b"smiles\nC\n")
        file.writelines([b"C" * 1_000_000] * 100)
    values = {"ckpt": str(trained_run.folder), "input": str(tmp_path / "new.csv.gz"), "output": str(tmp_path / "p.csv"), "device": "cpu"}
    tracemalloc.start()
    with pytest.raises(UserError, match=r"new.csv.gz, row 1 .*, line 3: the record is longer than 1 MB"):
        predict(parse(PredictConfig, {**values, "max_record_mb": 1, "on_error": "nan"}))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 20e6


def test_messages_do_not_steer_a_terminal(trained_run, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("smiles,y\nC,1\n" + "\x1b]0;owned\x07" + "C" * 300 + ",2\nCC,3\n")
    values = {"ckpt": str(trained_run.folder), "input": str(tmp_path / "new.csv"), "device": "cpu"}
    escaped = r"'\\x1b\]0;owned\\x07C{50,70}\.\.\.'"
    with pytest.raises(UserError, match=escaped):
        predict(parse(PredictConfig, {**values, "output": str(tmp_path / "p.csv")}))
    with pytest.raises(UserError, match=escaped):
        load_dataset(DatasetConfig(name="csv", path=str(tmp_path / "new.csv"), targets=["y"], cache_dir=str(tmp_path)))
    predict(parse(PredictConfig, {**values, "output": "-", "on_error": "skip"}))
    assert "\x1b" not in capsys.readouterr().err
