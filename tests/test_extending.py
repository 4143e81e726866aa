"""docs/extending.md: its layer works through the registry alone; docs/networks.md: its table is the code's."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from molgcn.config import Config, LayerSettings
from molgcn.data import PackedMolecules
from molgcn.export import ExportConfig, export
from molgcn.nn.options import PLAIN
from molgcn.nn.registry import get_kind
from molgcn.resources import resource
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_regressor
from molgcn.training.train import train

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.usefixtures("one_thread")
def test_a_layer_known_through_the_registry_alone(tmp_path, monkeypatch):
    layer, use = re.findall(r"```python\n(.*?)```", (DOCS / "extending.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(layer, names)
    exec(use, names)
    folder = tmp_path / "runs" / "diffusion"
    module = load_regressor(folder)
    assert (
        repr(module.model)
        == "MoleculeNet(" + f"{module.model.in_channels}, 16, num_layers=3, out_channels=1, conv='diffusion', backend='reference')"
    )

    config: Config = module.config
    longer = replace(config, trainer={**config.trainer, "max_epochs": 2}, resume=str(folder))
    assert train(longer, folder).epochs == 2

    molecules = PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "C"], features=module.features)
    predictions = predict_molecules(load_regressor(folder), molecules, 2)
    assert export(ExportConfig(str(folder), "model.pt2")) < 1e-5
    program = torch.export.load("model.pt2").module()
    batch = molecules.batch(slice(None))
    assert torch.allclose(program(batch.x, batch.edge_index, batch.batch).double(), torch.from_numpy(predictions), rtol=1e-5, atol=1e-5)


def cell(option: str, name: str) -> str:
    """What the table says of an option of a network: yes, no or always."""
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
    assert set(networks) == {yaml.safe_load(path.read_text())["name"] for path in (resource("conf") / "model").glob("*.yaml")}
    assert table == {option: [cell(option, name) for name in networks] for option in table}
    without = {option for name in networks for option in get_kind(name).without}
    assert table.keys() == {"bonds", *without, *LayerSettings.__dataclass_fields__}
