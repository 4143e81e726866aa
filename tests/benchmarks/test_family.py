"""The benchmark of steps of networks of all layers."""

import pytest
import torch
from compiler import needs_extension

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.family import KEY, NETWORKS, fused_step, measure, network, sheet
from molgcn_benchmark.results import Table

SMILES = ["CCO", "c1ccccc1O", "CC(=O)N", "CC#N"]


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    return PackedMolecules.from_smiles(SMILES, features="zinc")


def key(**options):
    values = {"network": "GINE 12 x 64", "device": "cpu", "work": "forward_backward", "batch_size": 4, "precision": "highest"}
    return {name: {**values, **options}[name] for name in KEY}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_can_be_built(molecules, name):
    conv, num_layers, width, _ = NETWORKS[name]
    model = network(name, molecules)
    assert (model.conv, model.num_layers, model.hidden_channels) == (conv, num_layers, width)


@needs_extension
@pytest.mark.parametrize("work", ["forward", "forward_backward", "step"])
def test_rows_are_measured_once(molecules, tmp_path, work):
    table = Table(tmp_path / "family.csv", KEY)
    (row,) = measure(molecules, [key(work=work)], ("fused", "pyg"), 1, table)
    assert row["fused_us"] > 0
    assert row["pyg_us"] > 0
    assert list(measure(molecules, [key(work=work)], ("fused", "pyg"), 1, table)) == []
    lines = sheet(table.rows)
    assert f"{row['pyg_us']:,.0f}" in lines[-1]
    assert len({line.count("|") for line in lines}) == 1


@needs_extension
def test_a_row_that_lacks_a_candidate_is_measured_again(molecules, tmp_path):
    table = Table(tmp_path / "family.csv", KEY)
    table.add({**key(), "fused_us": 1.0})
    (row,) = measure(molecules, [key()], ("fused", "pyg"), 1, table)
    assert row["pyg_us"] > 0
    assert table.rows == [row]


def test_memory_is_set_beside_pygs():
    row = {**key(device="cuda"), "pyg_us": 10.0, "fused_mb": 30.0, "fused_captured_mb": 32.0, "fused_recomputed_mb": 12.0, "pyg_mb": 40.0}
    titles, _, cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in sheet([row]))
    shown = dict(zip(titles, cells, strict=True))
    assert [shown[title] for title in ("MB", "MB captured", "MB recomputed", "MB, PyG")] == ["30", "32", "12", "40"]
    assert (shown["share of PyG's"], shown["recomputed, share"]) == ("0.75", "0.30")


@pytest.mark.gpu
def test_memory_is_measured_with_and_without_a_graph(molecules, tmp_path):
    candidates = ("fused", "fused_captured", "fused_recomputed", "pyg")
    (row,) = measure(molecules, [key(device="cuda", batch_size=2048)], candidates, 1, Table(tmp_path / "family.csv", KEY))
    assert 0 < row["fused_mb"] < row["pyg_mb"]
    assert row["fused_captured_mb"] > row["fused_mb"]  # whole segments
    assert 0 < row["fused_recomputed_mb"] < row["fused_captured_mb"]


def test_a_fused_step_runs_again_and_again(molecules):
    step = fused_step(molecules, "GIN+ 12 x 80", 2, 8, torch.device("cpu"))
    assert [step() for _ in range(2)] == [None, None]


@needs_extension
def test_wrong_numbers_are_refused(molecules, tmp_path, monkeypatch):
    monkeypatch.setattr("molgcn.nn.fused.predictions", lambda model, batch: batch.x.new_zeros(batch.num_graphs, model.out_channels))
    with pytest.raises(UserError, match="fused: predictions are off by"):
        list(measure(molecules, [key()], ("fused",), 1, Table(tmp_path / "family.csv", KEY)))
