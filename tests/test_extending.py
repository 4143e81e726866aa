"""The layer of docs/extending.md works through the registry alone, and the table of docs/networks.md is the code's."""

import csv
import re
import shlex
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from compiler import needs_extension
from conf_cases import MODELS, model_values
from emulated import emulate as emulate
from emulated import gpu_memory
from layer_network_cases import network_options, passes, random_call, worst_difference, worst_gradient
from network_cases import OPTIONS, batch_of, network
from plain_steps import PlainSteps
from run_cases import assert_same_run
from test_molecule_net import outcome
from torch_geometric.nn import TAGConv

from molgcn.config.layer_settings import LayerSettings
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn.options import PLAIN
from molgcn.nn.registry import ENTRY_POINTS, get_kind
from molgcn.ops import Objective
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
DOCS = Path(__file__).parents[1] / "docs"
EXTENDING = (DOCS / "extending.md").read_text()
LAYER, PROGRAM, FUSED = re.findall(r"```python\n(.*?)```", EXTENDING, re.DOTALL)
(PACKAGE,) = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", EXTENDING, re.DOTALL))
POINTS = "".join(f"{name} = {value}\n" for name, value in PACKAGE["project"]["entry-points"][ENTRY_POINTS].items())
(PRESET,) = re.findall(r"```yaml\n(.*?)```", EXTENDING, re.DOTALL)
(COMMANDS,) = re.findall(r"```bash\n(.*?)```", EXTENDING, re.DOTALL)
SMILES = ["CCO", "c1ccccc1O", "C", "CC(=O)N"]
SMALL = [
    "dataset.subset=40",
    "dataset.batch_size=8",
    "model.hidden_channels=8",
    "model.num_layers=2",
    "scheduler=constant",
    "training.report=false",
    "logger=csv",
]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a package of one module as pip does, with the module and its entry points."""
    site = tmp_path / "site-packages"

    def install(module: str, code: str, entry_points: str) -> None:
        about = site / f"{module}-1.0.dist-info"
        about.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entry_points}".replace('"', ""))
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def test_the_module_is_installed_although_a_folder_lies_beside_it():
    """Setuptools takes the folder of presets for the package, and leaves the module out, unless it is named."""
    assert PACKAGE["tool"]["setuptools"]["py-modules"] == ["diffusion"]
    assert PACKAGE["project"].keys() >= {"name", "version"}


@pytest.mark.usefixtures("one_thread", "empty_figures")
@pytest.mark.slow
def test_an_installed_layer_goes_through_every_command(install, cli, tmp_path):
    """The page's commands run in order with little data; two runs of one epoch equal one of two, bit for bit."""
    install("diffusion", f"{LAYER}\nimport torch\nPLACE = torch.zeros(1).device\n", POINTS)
    (tmp_path / "presets" / "model").mkdir(parents=True)
    (tmp_path / "presets" / "model" / "diffusion.yaml").write_text(PRESET)
    (tmp_path / "new.csv").write_text("\n".join(["smiles", *SMILES]))
    (train_it, resume, *others) = [shlex.split(line.replace("<run>", "own")) for line in COMMANDS.splitlines()]
    for epochs, folder in ((1, "own"), (2, "whole")):
        code, _, err = cli(*train_it[2:], *SMALL, f"trainer.max_epochs={epochs}", f"hydra.run.dir=runs/{folder}")
        assert code == 0, err
    code, _, err = cli(*[argument.replace("last", "runs/own") for argument in resume[2:]], "trainer.max_epochs=2")
    assert code == 0, err
    assert_same_run(tmp_path / "runs" / "own", tmp_path / "runs" / "whole")
    for _, _, module, *arguments in others:
        code, _, err = cli(*arguments, main=import_module(module).main)
        assert code == 0, err

    module = load_module("runs/own")
    assert sys.modules["diffusion"].PLACE.type == "cpu"
    assert module.model.convs[0].rate == 0.3
    molecules = PackedMolecules.from_smiles(SMILES, features=module.features)
    expected = predict_molecules(module, molecules, 2)
    with open("predictions.csv", newline="") as file:
        predicted = [[float(row["logp predicted"])] for row in csv.DictReader(file)]
    np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-5)
    batch = molecules.batch(slice(None))
    session = pytest.importorskip("onnxruntime").InferenceSession("model.onnx")
    exported = session.run(None, {name: getattr(batch, name).numpy() for name in ("x", "edge_index", "batch")})[0]
    np.testing.assert_allclose(exported, expected, rtol=1e-5, atol=1e-5)

    names: dict = {}
    exec(PROGRAM, names)
    assert repr(load_module("runs/diffusion").model).endswith("16, num_layers=3, out_channels=1, conv='diffusion', backend='reference')")


@pytest.fixture
def tag(install):
    """Install the page's layer with steps, and return its name."""
    install("tag", FUSED, "tag = tag:KIND")
    return "tag"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", ["plain", "norms", "gnn+"])
def test_an_installed_layer_that_says_its_steps_is_fused(tag, options, device):
    """Predictions, gradients and statistics of the fused backend are those of plain PyTorch, and the layer's are those of PyG's."""
    fused, reference = (network(tag, OPTIONS[options], backend, hops=3).to(device) for backend in ("fused", "reference"))
    for training in (True, False):
        found = [outcome(model.train(training), batch_of("many").to(device)) for model in (fused, reference)]
        torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    layer, theirs, batch = reference.convs[1].cpu(), TAGConv(12, 12, K=3).double(), batch_of("many")
    theirs.load_state_dict(layer.state_dict())
    h = torch.randn(batch.num_nodes, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(h, batch.edge_index), theirs(h, batch.edge_index), rtol=1e-12, atol=1e-12)


WITHOUT_WEIGHTS = """
from torch import nn
from molgcn.nn.layers.base import LayerKind
from molgcn.nn.layers.propagate import sum_incoming

class Neighbours(nn.Module):
    def __init__(self, options):
        super().__init__()

    def forward(self, x, edge_index, edge_attr=None):
        return sum_incoming(x.index_select(0, edge_index[0]), edge_index[1], x.shape[0])

KIND = LayerKind("neighbours", Neighbours, steps=lambda builder, options, h: builder.gather(h, "sum"))
"""


@needs_extension
def test_a_layer_without_weights_is_fused(install):
    install("neighbours", WITHOUT_WEIGHTS, "neighbours = neighbours:KIND")
    models = [network("neighbours", {**OPTIONS["norms"], "embed": True}, backend) for backend in ("fused", "reference")]
    torch.testing.assert_close(*(outcome(model, batch_of("many")) for model in models), rtol=1e-9, atol=1e-9)
    predictions, targets = models[0](batch_of("many")).detach(), torch.zeros(5, 2, dtype=torch.float64)
    objective = Objective(targets, targets[0], targets[0] + 1, "mse")
    torch.testing.assert_close(models[0].loss(batch_of("many"), objective)[0], predictions.square().mean())


@pytest.mark.usefixtures("emulate")
def test_its_steps_are_launches_on_cuda(tag):
    """Under emulation, kernels compute the layer's forward and backward passes as PyTorch does in float64."""
    call = random_call(network_options(tag, 7, 10, 2, norm="batch", residual=True, dropout=0.2))
    with gpu_memory():
        actual = passes(call, CudaSteps)
    expected = passes(call, PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (1e-10,)
    assert worst_gradient(actual, expected) < (1e-10,)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("broken", "import nowhere", r"The layer broken of broken, broken:KIND, cannot be imported: ModuleNotFoundError: .*'nowhere'"),
        ("empty", "", r"The layer empty of empty, empty:KIND, cannot be imported: AttributeError"),
        ("text", "KIND = 'text'", r"The layer text of text, text:KIND, is not a LayerKind called text"),
        ("other", "from molgcn.nn.layers.gin import KIND", r"is not a LayerKind called other"),
    ],
)
def test_installed_layers_that_cannot_be_used(install, name, code, message):
    install(name, code, f"{name} = {name}:KIND")
    with pytest.raises(UserError, match=message) as error:
        get_kind(name)
    assert "\n" not in str(error.value)
    with pytest.raises(
        UserError, match=rf"model.name='gcnn' is not valid: expected one of gcn, .*, {name}\. A layer of your own is found once"
    ):
        get_kind("gcnn")


def test_an_installed_layer_does_not_replace_one_of_molgcn(install):
    install("gin_of_mine", "raise RuntimeError", "gin = gin_of_mine:KIND")
    assert get_kind("gin").reference.__module__ == "molgcn.nn.layers.gin"


def cell(option: str, name: str) -> str:
    """Return the cell of the table for an option of a network: yes, no or always."""
    kind = get_kind(name)
    if option == "bonds":
        return {"never": "no", "optional": "yes", "always": "always"}[kind.bonds]
    has = option not in kind.without if option in PLAIN else option in kind.own_settings
    return "yes" if has else "no"


def test_the_table_of_networks_and_options_is_the_code_s():
    rows = [
        [one.strip(" `") for one in line.strip("|").split("|")] for line in (DOCS / "networks.md").read_text().splitlines() if "|" in line
    ]
    start = next(place for place, row in enumerate(rows) if row[0] == "option")
    networks, table = rows[start][1:], {row[0].partition("=")[0]: row[1:] for row in rows[start + 2 :]}
    assert set(networks) == {model_values(name)["name"] for name in MODELS}
    assert table == {option: [cell(option, name) for name in networks] for option in table}
    without = {option for name in networks for option in get_kind(name).without}
    assert table.keys() == {"bonds", *without, *LayerSettings.__dataclass_fields__}
