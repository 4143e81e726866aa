"""Models of Chemprop become runs that predict what Chemprop predicts; what has no counterpart is refused, and no code in a file runs."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import molgcn
from molgcn.config.run import Config
from molgcn.conversion.chemprop_file import read_chemprop
from molgcn.convert import ConvertConfig, convert
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.files.yaml_file import read_yaml
from molgcn.training.restore import load_module
from molgcn.training.train import train

FOLDER = Path(__file__).parent / "chemprop"
KNOWN = json.loads((FOLDER / "predictions.json").read_text())


def converted(name, folder, **keys):
    return convert(ConvertConfig(chemprop=str(FOLDER / name), output=str(folder / "run"), **keys))


@pytest.mark.parametrize("name", KNOWN["predictions"])
def test_a_run_predicts_what_chemprop_predicts(name, tmp_path):
    model = molgcn.load(converted(f"{name}.pt", tmp_path))
    descriptors = np.array(KNOWN["descriptors"]) if name.startswith("descriptors") else None
    atoms = [np.array(one) for one in KNOWN["atom_features"]] if name.startswith("own") else None
    bonds = [np.array(one) for one in KNOWN["bond_features"]] if name == "own_features" else None
    found = model.predict(KNOWN["smiles"], descriptors=descriptors, atom_features=atoms, bond_features=bonds)
    np.testing.assert_allclose(found.values, KNOWN["predictions"][name], rtol=1e-5, atol=1e-5)
    assert found.names[0] == ("size" if name == "trained" else "logp")


def test_a_checkpoint_of_its_training_predicts_the_same(tmp_path):
    model = molgcn.load(converted("trained.ckpt", tmp_path, targets=["a", "b"]))
    np.testing.assert_allclose(model.predict(KNOWN["smiles"]).values, KNOWN["predictions"]["trained"], rtol=1e-5, atol=1e-5)
    assert model.ensemble.names == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("atom_messages", "its message passing is AtomMessagePassing"),
        ("atom_descriptors", "has message_passing.W_d.bias, as with descriptors of atoms"),
        ("leaky_relu", "its activation is leakyrelu, whose slope is 0.1"),
        ("two_activations", "messages have the activation elu and the head relu"),
        ("quantile", "its head is QuantileFFN, and those with a counterpart are RegressionFFN, MveFFN"),
        ("dirichlet", "its head is BinaryDirichletFFN"),
        ("v1_features", "it was trained on Chemprop's V1 features, 133 of an atom and 14 of a bond"),
    ],
)
def test_what_has_no_counterpart_is_refused(name, reason, tmp_path):
    with pytest.raises(UserError, match=f"{name}.pt cannot be converted: .*{reason}"):
        converted(f"{name}.pt", tmp_path)
    assert not (tmp_path / "run").exists()


def changed(tmp_path, change):
    """Return a copy of a model's file in which `change` has changed the content, which tests trust."""
    file = read_chemprop(FOLDER / "plain.pt")
    content = {"hyper_parameters": {**file.parameters}, "state_dict": {**file.weights}, "output_columns": file.columns}
    for part in ("message_passing", "agg", "predictor"):
        content["hyper_parameters"][part] = {key: value for key, value in file.parameters[part].items() if key in ("depth", "norm")}
    change(content)
    torch.save(content, tmp_path / "changed.pt")
    return ConvertConfig(chemprop=str(tmp_path / "changed.pt"), output=str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.pop("state_dict"), "has no hyper_parameters or no state_dict"),
        (lambda content: content.update(args={}), "is a model of Chemprop 1"),
        (lambda content: content["hyper_parameters"].update(agg=3), "do not describe `agg`"),
        (lambda content: content["state_dict"].pop("message_passing.W_h.weight"), "it lacks message_passing.W_h.weight"),
        (lambda content: content, "its aggregation is unknown"),
    ],
)
def test_other_files_are_refused(change, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        convert(changed(tmp_path, change))


class Touch:
    """An object that makes a file when it is unpickled without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("kind", ["global", "package", "damaged"])
def test_malicious_and_damaged_files_are_refused(kind, tmp_path):
    trap = tmp_path / "was run"
    if kind == "global":
        config = changed(tmp_path, lambda content: content["hyper_parameters"].update(cls=Touch(trap)))
    elif kind == "package":  # a class of the user's own, which an import would run
        config = changed(tmp_path, lambda content: content["hyper_parameters"].update(cls=Config))
    else:
        config = changed(tmp_path, lambda content: None)
        data = bytearray((tmp_path / "changed.pt").read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / "changed.pt").write_bytes(data)
    with pytest.raises(UserError, match=r"changed\.pt is not a readable model of Chemprop"):
        convert(config)
    assert not trap.exists()
    assert not (tmp_path / "run").exists()


def test_objects_in_a_file_become_records():
    """Their classes are not imported, although they can be: torch's own are in every file that Chemprop's command writes."""
    file = read_chemprop(FOLDER / "trained.pt")
    activation = file.parameters["predictor"]["activation"]
    assert activation.name == "torch.nn.modules.activation.ReLU"
    assert not isinstance(activation, torch.nn.Module)


def test_names_and_folders_are_checked(tmp_path):
    with pytest.raises(UserError, match="it predicts 1 targets, and their names are a, b"):
        converted("plain.pt", tmp_path, targets=["a", "b"])
    with pytest.raises(UserError, match="message passing alone, which has no targets"):
        converted("message_passing.pt", tmp_path, targets=["a"])
    with pytest.raises(UserError, match="Give the model and the folder to make"):
        convert(ConvertConfig())
    with pytest.raises(UserError, match="There is no file chemprop="):
        converted("nothing.pt", tmp_path)
    shutil.copytree(FOLDER, tmp_path / "run")
    with pytest.raises(UserError, match="exists and is not empty"):
        converted("plain.pt", tmp_path)


@pytest.mark.parametrize("name", ["own_features", "descriptors_batch_norm"])
def test_what_came_from_files_is_asked_for_in_evaluation_too(name, tmp_path, empty_figures):
    folder = converted(f"{name}.pt", tmp_path)
    rows = [f"{smiles},{value[0]}" for smiles, value in zip(KNOWN["smiles"], KNOWN["predictions"][name], strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,logp", *rows]))
    files = {}
    if name == "own_features":
        for of, width in (("atom", 2), ("bond", 1)):
            files[f"{of}_features_path"] = str(tmp_path / f"{of}.npz")
            np.savez(tmp_path / f"{of}.npz", *(np.array(one, float).reshape(-1, width) for one in KNOWN[f"{of}_features"]))
    else:
        files["descriptors_path"] = str(tmp_path / "x.npz")
        np.savez(tmp_path / "x.npz", x=np.array(KNOWN["descriptors"]))
    dataset = EvaluationDataConfig(path=str(tmp_path / "x.csv"), **files)
    found = evaluate(EvaluateConfig(ckpt=str(folder), device="cpu", baseline="none", bootstrap=0, dataset=dataset))
    assert found.metrics["all/mae/logp"] < 1e-4
    given = "Give " if name == "own_features" else "Give the file for these molecules with "
    with pytest.raises(UserError, match=rf"{given}dataset\.{next(iter(files))}="):
        evaluate(EvaluateConfig(ckpt=str(folder), device="cpu", dataset=EvaluationDataConfig(path=str(tmp_path / "x.csv"))))


def test_message_passing_alone_is_trained_from(tmp_path, small_config, caplog):
    folder = converted("message_passing.pt", tmp_path)
    with pytest.raises(UserError, match="holds an encoder without a head, which predicts nothing"):
        load_module(folder)
    model = {**read_yaml(folder / "config.yaml", dict)["model"], "num_layers": 3}
    still = {"optimizer": {"name": "sgd", "lr": 1e-12}, "scheduler": {"name": "constant"}, "trainer": {"max_steps": 1}}
    with caplog.at_level("INFO"):
        train(small_config(dataset={"features": "chemprop"}, model=model, ckpt_path=str(folder), **still), tmp_path / "tuned")
    assert "the encoder's 4 weights are taken; the head starts anew: the checkpoint has none" in caplog.text
    assert "was trained with model.num_layers=4, which makes" in caplog.text  # which no weight shows: all rounds share theirs
    tuned, given = load_module(tmp_path / "tuned" / "checkpoints" / "last.ckpt"), read_chemprop(FOLDER / "message_passing.pt").weights
    for key, weight in given.items():
        torch.testing.assert_close(tuned.model.convs[0].state_dict()[key], weight, rtol=0, atol=1e-9)
