"""Paths of every kind survive the shell and Hydra, and words that would silently be ignored are refused."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.config.overrides import (
    as_typed,
    check_overrides,
    compose_config,
    own_presets,
    parse_override,
    quote,
    quote_texts,
    values_of,
    with_swept_groups,
)
from molgcn.errors import UserError
from molgcn.resources import resource

PATHS = ["a/b[1]", "a/${x}", "a/\\${x}", "it's ${b", "a b/$x", "{b}", "a\\b", "b\\", "a=b,(c)", "\u00e4", "\\\\${x}", "x${y}\\'"]


@pytest.mark.parametrize("path", PATHS)
def test_what_is_printed_means_the_path_when_it_is_typed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text("ckpt_path: null")
    Path(path).mkdir(parents=True)
    (typed,) = quote_texts(shlex.split(as_typed("ckpt_path", Path(path))))
    assert compose_config([typed], tmp_path, "one").ckpt_path == path
    assert values_of("ckpt_path", [typed]) == [path]


@given(st.text(st.sampled_from(list(r"""ab'\${}[]=,()" """)), min_size=1))
def test_a_quoted_text_is_that_text(text):
    assert values_of("key", [f"key={quote(text)}"]) == [text]


def test_an_interpolation_stays_one_where_no_file_has_its_name(tmp_path):
    assert quote_texts(["hydra.run.dir=runs/${now:%H}"]) == ["hydra.run.dir=runs/${now:%H}"]


@pytest.mark.parametrize("app", ["predict", "evaluate", "export"])
def test_two_checkpoints_are_not_one_of_them(app):
    with pytest.raises(UserError, match=r"ckpt=a and ckpt=b name ckpt 2 times.* Give it once"):
        check_overrides(["ckpt=a", "ckpt=b"], resource("conf"), app)
    check_overrides(["ckpt=a"], resource("conf"), app)


def test_quoting(monkeypatch):
    assert quote_texts(["dataset.path=a (1).csv", "model.norm=batch,layer"]) == ["dataset.path='a (1).csv'", "model.norm=batch,layer"]
    monkeypatch.setenv("HOME", "/home/me")
    assert quote_texts(["hydra.run.dir=~/a", "x=~/a", "ckpt=~nobody1/a"]) == ["hydra.run.dir=/home/me/a", "x=~/a", "ckpt='~nobody1/a'"]
    assert quote_texts(["dataset.path='a b'", "dataset.path=plain.csv"]) == ["dataset.path='a b'", "dataset.path=plain.csv"]
    assert quote_texts(["-m", "dataset.path=a.csv,b.csv"]) == ["-m", "dataset.path=a.csv,b.csv"]


def test_presets_of_ones_own(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nmodel:\n  num_layers: 7\n")
    arguments, folders = own_presets(["--config-dir", str(tmp_path), "experiment=mine", "--cfg", "job", "--info", "all"])
    assert arguments == ["experiment=mine", f"--config-dir={tmp_path}", "--cfg=job", "--info=all"]
    check_overrides(arguments, resource("conf"), "train", folders)
    assert compose_config(["experiment=mine"], resource("conf"), "train", folders).model.num_layers == 7
    with pytest.raises(UserError, match="Did you mean mine"):
        check_overrides(["experiment=mind"], resource("conf"), "train", folders)
    with pytest.raises(UserError, match="is not a folder"):
        own_presets(["--config-dir=nowhere"])


@pytest.mark.parametrize(
    ("typed", "command", "meant"),
    [
        ("epochs", "train", "trainer.max_epochs"),
        ("training.epochs", "train", "trainer.max_epochs"),
        ("device", "train", "trainer.accelerator"),
        ("gpus", "train", "trainer.devices"),
        ("model.hidden", "train", "model.hidden_channels"),
        ("path", "train", "dataset.path"),
        ("training.lr", "train", "optimizer.lr"),
        ("target", "train", "dataset.targets"),
        ("n_layers", "train", "model.num_layers"),
        ("mdl.num_layers", "train", "model.num_layers"),
        ("dataset.targetss", "train", "dataset.targets"),
        ("datasett", "train", "dataset"),
        ("path", "predict", "input"),
        ("ckpt_path", "predict", "ckpt"),
        ("gpus", "predict", "device"),
    ],
)
def test_the_key_that_was_meant(typed, command, meant):
    with pytest.raises(UserError, match=rf"^{typed} is not a key of the configuration\. Did you mean {meant}\?"):
        check_overrides([f"{typed}=1"], resource("conf"), command)


def test_no_suggestion_for_a_word_like_no_key():
    with pytest.raises(UserError, match=r"configuration\. `--help`"):
        check_overrides(["qwertz=1"], resource("conf"), "train")


def test_loggers_to_be_verbose():
    for value in ("true", "false", "molgcn", "'molgcn.data'", "[molgcn,hydra]"):
        check_overrides([f"hydra.verbose={value}"], resource("conf"), "train")
    for value in ("3", "null", "{a: 1}", "[3]", "[molgcn,null]"):
        with pytest.raises(UserError, match="expected true, false, or the name of a logger"):
            check_overrides([f"hydra.verbose={value}"], resource("conf"), "train")


def test_a_launcher_that_is_not_installed(tmp_path):
    (tmp_path / "launcher").mkdir()
    (tmp_path / "launcher" / "other.yaml").write_text("# @package _global_\ndefaults:\n  - override /hydra/launcher: nowhere\n")
    with pytest.raises(UserError, match=r"pip install molgcn\[launchers\]"):
        check_overrides(["launcher=other"], resource("conf"), "train", [tmp_path])


def test_lightning_arguments_can_be_added():
    check_overrides(
        ["+trainer.detect_anomaly=true", "~trainer.max_steps", "hydra.job.chdir=true", "hydra/launcher=submitit_local"],
        resource("conf"),
        "train",
    )
    with pytest.raises(UserError, match="Quote it"):
        check_overrides(["model.norm=a(b"], resource("conf"), "train")


def test_a_list_is_quoted_text_by_text():
    """Quoted as one text it would not be a list."""
    with pytest.raises(UserError) as error:
        check_overrides(["dataset.targets=[ΔG, mu]"], resource("conf"), "train")
    advice = re.search("as in '([^']*)'", str(error.value))
    assert advice
    assert parse_override(advice[1]).value() == ["ΔG", "mu"]


@given(st.text(st.sampled_from(list(r"CNOFPSIBrcnosl[]()=#$:/\.@+-%0123456789*")), min_size=1).filter(re.compile("[A-Za-z*]").search))
def test_a_smiles_needs_no_quotes_of_hydras(text):
    assert values_of("molecule", quote_texts([f"molecule={text}"])) == [text]


@pytest.mark.parametrize(
    ("app", "arguments", "what"),
    [
        ("predict", ["--ckpt=runs/first", "input=x.csv"], r"--ckpt=runs/first is not understood.* without dashes.*`--help`"),
        ("predict", ["--ckpt", "runs/first"], r"--ckpt is not understood.* without dashes"),
        ("predict", ["runs/first", "x.csv"], r"'runs/first' is not understood\. Expected key=value.*`--help`"),
        ("predict", ["ckpt=a", "model=gine"], "model is not a key of the configuration"),
        ("train", ["benchmark=epochs"], "benchmark is not a key of the configuration"),
    ],
)
def test_words_of_other_programs_and_commands(app, arguments, what):
    with pytest.raises(UserError, match=what):
        check_overrides(arguments, resource("conf"), app)


def test_flags_of_hydra_are_none_of_them():
    check_overrides(["--multirun", "seed=0,1", "--cfg=job", "--info=all", "--config-dir=."], resource("conf"), "train")


def test_keys_of_swept_networks_are_for_each_of_them():
    arguments = ["-m", "model=gat,gatv2", "model.heads=3", "model.norm=null", "model.concat=true,false", "seed=1"]
    words = with_swept_groups(arguments, resource("conf"), "train")
    assert words == ["-m", "model=gat,gatv2", "++model.heads=3", "model.norm=null", "model.concat=true,false", "seed=1"]
    compose_config([word for word in words[1:] if "," not in word], resource("conf"), "train")  # as Hydra composes the sweep's own
    lacking = ["-m", "model=gat,gcn", "model.heads=2,4"]  # Hydra would compose each job before the first
    assert with_swept_groups(lacking, resource("conf"), "train") == [*lacking[:2], "++model.heads=2,4"]
    alone = ["-m", "model=gat", "model.heads=3", "seed=0,1"]
    assert with_swept_groups(alone, resource("conf"), "train") == alone
