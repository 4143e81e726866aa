import csv
import json

import pytest
import torch

from molgcn.benchmark.candidates import build
from molgcn.benchmark.measure import interleaved, medians
from molgcn.benchmark.steps import Grid, check, run
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN
from molgcn.ops import HAS_CPU_EXTENSION

needs_extension = pytest.mark.skipif(not HAS_CPU_EXTENSION, reason="installed without the C++ extension")


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    return PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "CC(C)N", "C#N"], num_workers=1)


@needs_extension
def test_rows_are_written_as_measured_and_a_second_call_continues(molecules, tmp_path):
    output = tmp_path / "results" / "step.csv"
    candidates = ("fused", "pyg", "pyg_hoisted")
    first = run(molecules, Grid(num_layers=(2,), batch_sizes=(4,), hidden_channels=8, candidates=candidates, repeats=2), output)
    second = run(molecules, Grid(num_layers=(2, 3), batch_sizes=(4,), hidden_channels=8, candidates=candidates, repeats=2), output)
    assert [(row.work, row.num_layers) for row in first] == [("forward", 2), ("forward_backward", 2)]
    assert [row.num_layers for row in second] == [3, 3]
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["num_layers"] for row in rows] == ["2", "2", "3", "3"]
    for row in rows:
        assert float(row["against_pyg"]) == pytest.approx(float(row["pyg_ms"]) / float(row["fused_ms"]), rel=0.02)
    facts = json.loads(output.with_suffix(".json").read_text())["machine"]
    assert facts["torch"] == torch.__version__ and facts["fma_peak_gflops"] > 0 and facts["cpu"]


@needs_extension
@pytest.mark.parametrize("name", ["fused", "pyg", "pyg_hoisted"])
def test_wrong_numbers_are_not_timed(molecules, name):
    model = GCN(molecules.num_features, 8, 3, 1, backend="pyg")
    built = {name: build(name, model)}
    batch = molecules.batch(slice(None))
    check(built, model, batch)
    with torch.no_grad():
        built[name][0].convs[1].bias += 1e-3
    with pytest.raises(UserError, match=f"{name} is wrong"):
        check(built, model, batch)


def test_interleaved_calls_each_in_turn():
    order: list[str] = []
    times = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, torch.device("cpu"), repeats=3, warm_up=1)
    assert order == ["a", "b"] + ["a", "b"] * 3
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}
    assert medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}
