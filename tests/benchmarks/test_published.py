import pytest
from compiler import needs_extension
from torch.nn.modules.module import register_module_forward_hook

from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn_benchmark import published
from molgcn_benchmark.results import Table
from molgcn_benchmark.steps import Grid


@pytest.mark.parametrize(
    ("dataset", "work", "size", "expected"),
    [
        ("qm9", "forward", (28, 4096), "3.13"),
        ("qm9", "backward", (28, 4096), "0.69"),
        ("builtin", "training", (28, 4096), "1.30"),
        ("zinc:zinc", "forward", (28, 4096), "2.73"),
        ("ZINC", "backward", (12, 8192), "0.65-0.68"),
        ("qm9", "forward", (28, 128), ""),
        ("qm9", "forward", (4, 4096), ""),
    ],
)
def test_what_the_study_reports(dataset, work, size, expected):
    assert published.study_factor(dataset, work, *size) == expected


@needs_extension
def test_the_protocol_moves_the_batch_every_iteration(tmp_path):
    molecules = PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "CC(C)N"])
    calls = []

    def note(module, inputs, _):
        if isinstance(module, GCN):
            calls.append(module.backend.name)

    table = Table(tmp_path / "published.csv", published.KEY)
    grid = Grid(num_layers=(2,), batch_sizes=(3,), hidden_channels=8)
    with register_module_forward_hook(note):
        (row,) = published.measure(molecules, "three", grid, table, warm_up=1, iterations=2, repeats=2)
    assert calls[-12:] == (["fused"] * 3 + ["pyg"] * 3) * 2  # after the calls of the check
    for work in published.WORKS:
        assert row[f"{work}_factor"] == pytest.approx(row[f"{work}_pyg_ms"] / row[f"{work}_fused_ms"], rel=0.02)
    assert list(published.measure(molecules, "three", grid, Table(tmp_path / "published.csv", published.KEY))) == []
