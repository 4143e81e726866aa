"""Exported files predict what the checkpoint does, whatever the numbers of atoms, bonds and molecules."""

import io
import json
import re
import sys

import numpy as np
import pytest
import torch

from molgcn.config.run import Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.export import BOUND, METADATA, ExportConfig, export, largest_difference, main, random_molecules
from molgcn.training.restore import load_module
from molgcn.training.train import train

SMILES = ["CCO", "c1ccccc1O", "C", "CC(=O)N", "C1CC1", "O"]


def load_onnx(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda **inputs: session.run(["prediction"], {name: value.numpy() for name, value in inputs.items()})[0]


def load_pt2(path):
    program = torch.export.load(path).module()
    return torch.no_grad(lambda **inputs: program(*inputs.values()).numpy())


LOAD = {"onnx": load_onnx, "pt2": load_pt2}


def check(folder, path):
    """Compare batches of many molecules, of one, and of one atom without a bond with the checkpoint in float64."""
    module = load_module(folder).double()
    molecules = PackedMolecules.from_smiles(SMILES, features="qm9")
    program = LOAD[path.suffix[1:]](path)

    def run(batch):
        return program(x=batch.x, edge_index=batch.edge_index, batch=batch.batch)

    for chosen in (slice(None), [1], [0, 3], [2, 2, 2]):
        batch = molecules.batch(chosen)
        actual = run(batch)
        batch.x = batch.x.double()
        with torch.no_grad():
            np.testing.assert_allclose(actual, module.cpu()(batch).numpy(), rtol=1e-4, atol=1e-4)
    lone = random_molecules(11, 1).batch([0])
    assert lone.num_edges == 0
    assert np.isfinite(run(lone)).all()


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_the_command_writes_units_and_values(trained_run, cli, tmp_path, ending):
    path = tmp_path / "out" / f"my model.{ending}"
    code, out, err = cli(f"ckpt={trained_run.folder}", f"output=out/{path.name}", main=main)
    assert code == 0, err
    (difference,) = re.findall(rf"{path.name} predicts logp, tpsa in A\^2; largest relative difference from the checkpoint (\S+)", out)
    assert float(difference) < 1e-5
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    check(trained_run.folder, path)
    if ending == "onnx":
        import onnx

        model = onnx.load(path)
        onnx.checker.check_model(model)
        about = {entry.key: entry.value for entry in model.metadata_props}
        (output,) = model.graph.output
        assert [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim] == ["molecules", 2]
        assert {value.domain for value in model.opset_import if value.version} <= {"", "pkg.onnxscript.torch_lib.common"}
    else:
        extra = {METADATA: ""}
        torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra)
        about = json.loads(extra[METADATA])
    assert (json.loads(about["target_names"]), json.loads(about["target_units"])) == (["logp", "tpsa"], ["", "A^2"])
    assert (about["features"], about["features_version"], len(json.loads(about["feature_names"]))) == ("qm9", "1", 11)


ALL = {"residual": True, "embed": True, "last_activation": True, "head_layers": 1, "dropout": 0.2}


@pytest.mark.parametrize(
    "model",
    [
        {"pool": "max", "norm": "layer", "add_self_loops": False, **ALL},
        {"name": "dmpnn", "bonds": False, "norm": None, "residual": False, "last_activation": True},
        {"pool": "sum", "norm": None, "residual": False},
    ],
    ids=["all", "dmpnn", "none"],
)
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.slow
def test_other_options_and_the_moving_average(trained_config, tmp_path, model, ending):
    values = {
        **trained_config,
        "model": {**trained_config["model"], **model},
        "training": {"report": False, "ema_decay": 0.9},
        "trainer": {**trained_config["trainer"], "max_epochs": 1},
    }
    train(parse(Config, values), tmp_path / "run")
    export(ExportConfig(str(tmp_path / "run"), str(tmp_path / f"m.{ending}")))
    check(tmp_path / "run", tmp_path / f"m.{ending}")


def test_a_difference_would_be_seen(trained_run):
    module = load_module(trained_run.folder)

    def off(scale):
        def run(x, edge_index, batch):
            from torch_geometric.data import Batch

            data = Batch(x=x, edge_index=edge_index, batch=batch, y=torch.zeros(int(batch.max()) + 1, 0))
            data._num_graphs = int(batch.max()) + 1
            return module(data) + scale * module.target_std * (torch.arange(data.num_graphs) == data.num_graphs - 1)[:, None]

        return run

    assert largest_difference(off(0.0), module) < 1e-6
    assert largest_difference(off(0.01), module) > BOUND
    assert largest_difference(off(float("nan")), module) == float("inf") or largest_difference(off(float("nan")), module) > BOUND
    assert largest_difference(lambda *_: torch.zeros(3, 9), module) == float("inf")


def test_what_differs_is_not_written(trained_run, tmp_path):
    """Weights that are NaN predict NaN, which cannot be compared."""
    content = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)
    content["state_dict"]["model.convs.0.bias"].fill_(torch.nan)
    (tmp_path / "in").mkdir()
    torch.save(content, tmp_path / "in" / "nan.ckpt")
    with pytest.raises(UserError, match=r"differs from the checkpoint by inf .*is not written"):
        export(ExportConfig(str(tmp_path / "in" / "nan.ckpt"), str(tmp_path / "out" / "m.pt2")))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ckpt": None}, "No checkpoint is named"),
        ({"ckpt": "nowhere.ckpt"}, "There is no checkpoint nowhere.ckpt"),
        ({"output": "model.pb"}, r"ends in \.onnx or \.pt2"),
        ({"output": "/proc/m.pt2"}, "cannot be written"),
        ({"output": "file/m.pt2"}, "cannot be written"),
        ({"output": "folder.onnx"}, "is a folder"),
    ],
)
def test_mistakes_are_one_paragraph(trained_run, tmp_path, monkeypatch, options, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UserError, match=what) as error:
        export(ExportConfig(**{"ckpt": str(trained_run.folder), "output": "m.pt2", **options}))
    assert "\n" not in str(error.value)
    assert len(list(tmp_path.iterdir())) == 2


def test_without_onnx_s_packages(trained_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[export\].*output=model.pt2"):
        export(ExportConfig(str(trained_run.folder), str(tmp_path / "m.onnx")))
