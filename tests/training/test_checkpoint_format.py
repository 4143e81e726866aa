"""Checkpoints describe themselves; older ones are converted, newer ones refused with an error."""

import json

import pytest
import torch

from molgcn.data.featurizers import FEATURIZERS
from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.checkpoint_format import FORMAT, features_of, upgrade
from molgcn.training.restore import load_module


@pytest.fixture
def saved(trained_run):
    return load_checkpoint(trained_run.folder / "checkpoints" / "best.ckpt")


def write(checkpoint, tmp_path):
    torch.save(checkpoint, tmp_path / "x.ckpt")
    return tmp_path / "x.ckpt"


def test_it_holds_what_prediction_needs_as_plain_values(saved):
    description = saved["molgcn"]
    assert json.loads(json.dumps(description)) == json.loads(json.dumps(description, default=list))
    assert description["format"] == FORMAT
    assert (description["features"], description["features_version"], description["in_channels"]) == ("qm9", 1, 11)
    assert (description["target_names"], description["target_units"]) == (["logp", "tpsa"], ["", "A^2"])
    assert description["config"]["model"]["num_layers"] == 3
    assert description["versions"]["torch"] == torch.__version__
    assert {"target_mean", "target_std"} <= saved["state_dict"].keys()


@pytest.mark.parametrize(("writer", "who"), [({"molgcn": "9.1"}, "molgcn 9.1"), ({}, "a newer molgcn"), (3, "a newer molgcn")])
def test_a_newer_format_is_refused(saved, tmp_path, writer, who):
    saved["molgcn"].update(format=FORMAT + 1, versions=writer, config="who knows")
    with pytest.raises(UserError, match=rf"x.ckpt was written by {who} in format {FORMAT + 1}; this molgcn reads formats 2 and {FORMAT}"):
        load_module(write(saved, tmp_path))


@pytest.mark.parametrize(("writer", "said"), [("9.1", True), ("0.0.1", False), ("?", False), (None, False)])
def test_a_newer_molgcn_is_said_where_its_format_is_read(saved, tmp_path, caplog, writer, said):
    saved["molgcn"]["versions"]["molgcn"] = writer
    assert load_module(write(saved, tmp_path)).versions["torch"] == torch.__version__
    assert ("x.ckpt is by molgcn 9.1, and this is molgcn" in caplog.text) == said
    assert ("does not know what is new there" in caplog.text) == said


def test_a_key_of_a_newer_molgcn_is_its_own(saved, tmp_path):
    saved["molgcn"]["config"]["model"]["later"] = 1
    with pytest.raises(UserError, match=r"^model\.later is not a known key"):
        load_module(write(saved, tmp_path))
    saved["molgcn"]["versions"]["molgcn"] = "9.1"
    with pytest.raises(
        UserError, match=r"x\.ckpt was written by molgcn 9\.1, and .* cannot use it: model\.later is .* Install that version"
    ):
        load_module(write(saved, tmp_path))


@pytest.mark.parametrize("number", ["2", 0, 1, 3, True, None, 1.5, [1]])
def test_a_format_that_is_none(number, tmp_path):
    with pytest.raises(UserError, match="says that its format is"):
        upgrade({"format": number}, tmp_path / "x.ckpt")


@pytest.mark.parametrize("version", [0, 7, "1:1", None])
def test_a_version_of_the_featuriser_that_is_not_here_is_refused(saved, tmp_path, version):
    """The rows of another version have another meaning, with which the same weights would predict nonsense."""
    saved["molgcn"]["features_version"] = version
    with pytest.raises(
        UserError, match=rf"version {version} of features=qm9, .* \(its newest is version 1\).*Use molgcn \S+, which wrote it"
    ):
        load_module(write(saved, tmp_path))


def test_an_older_version_of_the_featuriser_is_named_and_kept(saved, tmp_path):
    saved["molgcn"].update(features="general", features_version=1, in_channels=43)
    assert features_of(saved["molgcn"], tmp_path) == "general:1"
    newest = FEATURIZERS["general"]
    saved["molgcn"].update(features_version=newest.version, in_channels=newest.num_features, stereo=True)
    assert features_of(saved["molgcn"], tmp_path) == "general"
    saved["molgcn"]["stereo"] = False
    assert features_of(saved["molgcn"], tmp_path) == "general:no_stereo"
    del saved["molgcn"]["stereo"]  # which checkpoints did not have when there was nothing to turn off
    assert features_of(saved["molgcn"], tmp_path) == "general"


def test_what_it_was_trained_on(saved):
    assert saved["molgcn"]["trained_on"] == {"elements": [1, 6, 7, 8, 9], "heavy_atoms": [4, 9], "mixtures": False, "mixture_share": 0.0}
