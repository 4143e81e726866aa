import json
import platform
import re
import subprocess

import torch

from molgcn.training.provenance import git_commit, provenance, versions


def test_what_is_recorded():
    values = provenance("abc", torch.device("cpu"), 7)
    assert json.loads(json.dumps(values)) == values
    assert values["versions"]["torch"] == torch.__version__
    assert values["versions"]["python"] == platform.python_version()
    assert set(values["versions"]) >= {"molgcn", "torch-geometric", "rdkit", "lightning"}
    assert (values["data_hash"], values["seed"]) == ("abc", 7)
    assert values["device"].endswith("CPU")
    assert values["threads"] >= 1


def test_a_package_that_is_not_there_has_no_version():
    assert versions(["no-such-package-at-all"]) == {"python": platform.python_version(), "no-such-package-at-all": None}


def test_the_commit_and_whether_files_differ(tmp_path, monkeypatch):
    source = tmp_path / "source.py"
    source.write_text("one")
    assert git_commit(tmp_path) is None  # no checkout
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], check=True)
    commit = git_commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    source.write_text("two")
    assert git_commit(tmp_path) == f"{commit}+changes"
    monkeypatch.setenv("PATH", "")
    assert git_commit(tmp_path) is None  # no git


def test_a_run_has_it(trained_run):
    values = json.loads((trained_run.folder / "provenance.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{64}", values["data_hash"])
    assert values["seed"] == 0
