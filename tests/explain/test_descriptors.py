"""`python -m molgcn.explain` attributes descriptors too, and says where they outweigh atoms and bonds."""

import csv
import re
import shutil
from collections import defaultdict

import numpy as np
import pytest
import torch
from rdkit import Chem

from molgcn.config.run import Config, parse
from molgcn.data.descriptors.generators import generated_names
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions
from molgcn.explain.names import DescriptorGroups, name_column, shares_of, small_share
from molgcn.explain.page import Bar, bars_of
from molgcn.screening.descriptors import DescriptorInput
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ["water", "a <b>", "", "acid"]
SMILES = ["O", "CCO", "c1ccccc1O", "CC(=O)O"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a small network with descriptors."""
    folder = tmp_path_factory.mktemp("described")
    molecules = ["C" * (n % 12 + 1) + "NO"[n % 2] + "C" * (n // 12) for n in range(60)]
    (folder / "x.csv").write_text("smiles,y\n" + "".join(f"{text},{len(text) + 0.1 * n}\n" for n, text in enumerate(molecules)))
    dataset = {"name": "csv", "path": str(folder / "x.csv"), "targets": ["y"], "features": "general"}
    values = {
        "dataset": {**dataset, "descriptor_generators": ["physchem", "maccs"], "batch_size": 16},
        "model": {"name": "gine", "bonds": True, "hidden_channels": 8, "num_layers": 2},
        "training": {"report": False},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    return train(parse(Config, values), folder / "run").folder


def explained(run, output, **values):
    explain(parse(ExplainConfig, {"device": "cpu", "num_workers": 0, "ckpt": str(run), "output": str(output), **values}))
    tables = []
    for name in ("molecules.csv", "contributions.csv"):
        with open(output / name, newline="") as file:
            tables.append(list(csv.DictReader(file)))
    return *tables, (output / "index.html").read_text()


@pytest.fixture
def table(tmp_path):
    with open(tmp_path / "new.csv", "w", newline="") as file:
        csv.writer(file).writerows([["smiles", "Compound ID"], *zip(SMILES, NAMES, strict=True)])
    return tmp_path / "new.csv"


@pytest.mark.parametrize("method", ["integrated_gradients", "masking"])
def test_all_parts_add_up_and_are_shown_beside_the_picture(run, table, tmp_path, method):
    molecules, parts, page = explained(run, tmp_path / "why", input=str(table), method=method, orders=2, steps=200)
    assert [*molecules[0]][2:] == ["y predicted", "baseline", "difference", "atoms and bonds", "physchem", "maccs", "completeness error"]
    sums, kinds = defaultdict(float), defaultdict(set)
    for part in parts:
        kinds[part["part"]].add(part["descriptor"])
        for name in ("all", part["part"], part["descriptor"].split("_")[0]):
            sums[int(part["row"]), name] += float(part["contribution"])
    assert kinds["atom"] == kinds["bond"] == {""} and len(kinds["descriptor"]) == 121 + 166
    for row, molecule in enumerate(molecules):
        of_graph = sums[row, "atom"] + sums[row, "bond"]
        for name, total in (("atoms and bonds", of_graph), ("physchem", sums[row, "physchem"]), ("maccs", sums[row, "maccs"])):
            assert float(molecule[name]) == pytest.approx(total, abs=1e-4)
        assert float(molecule["difference"]) == pytest.approx(float(molecule["y predicted"]) - float(molecule["baseline"]), abs=1e-4)
        missed = sums[row, "all"] - float(molecule["difference"])
        assert missed == pytest.approx(float(molecule["completeness error"]), abs=1e-4)
        assert abs(missed) < 0.01 * sum(abs(float(part["contribution"])) for part in parts if part["row"] == str(row))
    assert page.count('class="bars"') == len(SMILES)
    assert all(f"<span>{name}</span>" in page for name in ("atoms and bonds", "physchem", "maccs"))
    widths = [float(width) for width in re.findall(r"(?:left|right): 50%; width: ([\d.]+)%", page)]
    assert max(widths) == 50 and len(widths) >= 4 * (3 + 5 + 1)


def test_the_page_names_the_molecules(run, table, tmp_path):
    _, _, page = explained(run, tmp_path / "why", input=str(table), method="masking", orders=1)
    assert re.findall(r"<h2>(.*)</h2>", page) == ["water", "a &lt;b&gt;", "acid"]
    assert re.findall(r"<code>(.*)</code>", page) == SMILES


@pytest.mark.parametrize(("kept", "share"), [("descriptors", "0 %"), ("graph", None)])
def test_a_small_share_of_the_graph_is_said_in_the_terminal_and_on_the_page(run, table, tmp_path, caplog, kept, share):
    shutil.copytree(run, tmp_path / "changed")
    path = tmp_path / "changed" / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    width = 8
    for name, weight in content["state_dict"].items():
        if weight.ndim == 2 and weight.shape[1] == width + 121 + 166:  # the head's first layer
            weight[:, :width] *= kept == "graph"
            weight[:, width:] *= kept == "descriptors"
            assert "head" in name
    torch.save(content, path)
    caplog.set_level("WARNING")
    _, _, page = explained(tmp_path / "changed", tmp_path / "why", input=str(table), method="masking", orders=1)
    for text in (caplog.text, page):
        assert ("Atoms and bonds make up" in text) == (kept == "descriptors")
        assert share is None or f"make up {share} of what moves these predictions" in text


def test_shares_are_those_of_sizes():
    assert shares_of({"atoms and bonds": 1.0, "physchem": 2.0, "file": 1.0}) == {"atoms and bonds": 0.25, "physchem": 0.5, "file": 0.25}
    assert "25 % of what" in small_share({"atoms and bonds": 0.25, "physchem": 0.5, "file": 0.25})
    assert "(physchem 50 %, file 25 %)" in small_share({"atoms and bonds": 0.25, "file": 0.25, "physchem": 0.5})
    assert "less than 1 %" in small_share({"atoms and bonds": 0.001, "physchem": 0.999})
    assert not small_share({"atoms and bonds": 1.0})
    assert not small_share({"atoms and bonds": 0.5, "physchem": 0.5})


@pytest.mark.parametrize("components", [(), ("a", "b")])
def test_descriptors_form_groups_by_where_they_come_from(components):
    generated = [f"{one}.maccs_{key}" if one else f"maccs_{key}" for one in components or [""] for key in range(1, 167)]
    names = ["t", "ph", "x_0", *generated]
    groups = DescriptorGroups.of(names, DescriptorInput(("t", "ph"), ("t", "ph", "x_0"), ("maccs",)), components)
    assert {name: [*names[places]] for name, places in groups.places.items()} == {
        "columns": ["t", "ph"],
        "x_0": ["x_0"],
        **{f"{one}.maccs" if one else "maccs": [name for name in generated if name.startswith(one)] for one in components or [""]},
    }


def test_the_largest_descriptors_have_their_short_names():
    names = ["ph", *generated_names(["physchem", "maccs"])]
    groups = DescriptorGroups.of(names, DescriptorInput(("ph",), ("ph",), ("physchem", "maccs")), ())
    values = np.zeros(len(names))
    values[[0, names.index("physchem_exactmw"), names.index("maccs_17"), names.index("maccs_3"), names.index("physchem_amw")]] = (
        9,
        -3,
        1,
        -2,
        0.5,
    )
    found = Contributions(np.ones(1), np.zeros(0), np.zeros((0, 2), int), values, 1.0, 0.0)
    assert groups.largest(found, 3) == {"physchem": {"exactmw": -3}, "maccs": {"maccs_3": -2}}
    assert bars_of(found, groups) == [
        *[Bar("atoms and bonds", 1), Bar("ph", 9), Bar("physchem", -2.5), Bar("exactmw", -3, True), Bar("amw", 0.5, True)],
        *[Bar("119 others", 0, True), Bar("maccs", -1), Bar("maccs_3", -2, True), Bar("maccs_17", 1, True), Bar("164 others", 0, True)],
    ]


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        (["smiles", "name"], 1),
        (["Compound ID", "smiles"], 0),
        (["smiles", "y", "mol_id"], 2),
        (["SMILES", "CompoundName"], 1),
        (["smiles", "title"], 1),
        (["smiles", "acid", "width", "y"], None),
    ],
)
def test_which_column_names_molecules(columns, place):
    assert name_column(columns) == place


LONG = "CC(C)Cc1ccc(cc1)C(C)C(=O)NC2CCN(CC2)c3ncccc3C(F)(F)F"
WRITTEN = "[CH3:9]C([H])(C)[CH2:5]c1ccc(c([H])c1)C([H:4])(C)C(=O)N([H])C2CC[N:2](CC2)c3ncc[cH:11]c3[C:1](F)(F)F"


def test_atoms_come_in_the_order_of_the_smiles_whatever_maps_and_hydrogens_it_writes(run, tmp_path):
    """Some programs sort 17 and more atoms by maps that only a few of them have."""
    elements = [atom.GetSymbol() for atom in Chem.MolFromSmiles(LONG).GetAtoms()]
    found = []
    for name, smiles in (("plain", LONG), ("written", WRITTEN)):
        _, parts, _ = explained(run, tmp_path / name, molecule=smiles, method="masking", orders=2)
        found.append([(part["part"], part["atoms"], part["elements"], part["contribution"]) for part in parts])
        assert [part["elements"] for part in parts if part["part"] == "atom"] == elements
    assert len(elements) == 31 and found[0] == found[1]


def test_a_page_without_descriptors_has_no_bars(trained_run, tmp_path):
    molecules, _, page = explained(trained_run.folder, tmp_path / "why", molecule="CCO", target="logp", method="masking", orders=1)
    assert 'class="bars"' not in page and "descriptor" not in page.replace("described", "")
    assert "atoms and bonds" not in molecules[0]
