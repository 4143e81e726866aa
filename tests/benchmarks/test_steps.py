import csv

import pytest
import torch
from compiler import needs_extension
from torch.nn.modules.module import register_module_forward_hook

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN
from molgcn_benchmark.candidates import build
from molgcn_benchmark.results import Table
from molgcn_benchmark.steps import KEY, WORKS, Grid, check, measure
from molgcn_benchmark.weights import exact

CPU = torch.device("cpu")
CANDIDATES = ("fused", "pyg", "pyg_hoisted")


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    return PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "CC(C)N", "C#N"])


def grid(*layers, **options):
    return Grid(num_layers=layers, batch_sizes=(4,), hidden_channels=8, candidates=CANDIDATES, repeats=2, **options)


@needs_extension
def test_rows_are_written_as_measured_and_a_second_call_continues(molecules, tmp_path):
    path = tmp_path / "results" / "steps.csv"
    first = []
    for row in measure(molecules, "four", grid(2), Table(path, KEY), peak=100.0):
        first.append(row)
        with path.open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(first)
    second = list(measure(molecules, "four", grid(2, 3), Table(path, KEY)))
    assert [row["work"] for row in first] == list(WORKS)
    assert [(row["num_layers"], row["dataset"]) for row in second] == [(3, "four")] * 5
    rows = Table(path, KEY).rows
    assert [row["num_layers"] for row in rows] == [2] * 5 + [3] * 5
    for row in rows:
        if row["work"] != "backward":  # a difference, which can be zero
            assert row["against_pyg"] == pytest.approx(row["pyg_ms"] / row["fused_ms"], abs=0.02 + 0.01 * row["against_pyg"])
            assert row["against_best"] <= row["against_pyg"]
    by_work = {row["work"]: row for row in first}
    difference = by_work["forward_backward"]["pyg_ms"] - by_work["training_forward"]["pyg_ms"]
    assert by_work["backward"].get("pyg_ms") == (pytest.approx(difference, abs=2e-4) if difference > 0 else None)
    assert by_work["forward"]["peak"] == pytest.approx(by_work["forward"]["gflops"] / 100, abs=1e-3)


@needs_extension
def test_only_the_works_asked_for_and_no_launches_on_a_cpu(molecules):
    rows = list(measure(molecules, "four", grid(2, works=("backward", "step"), warm_up=0), Table(None, KEY)))
    assert [row["work"] for row in rows] == ["backward", "step"]
    assert not any(name.endswith("_launches") for row in rows for name in row)


@needs_extension
@pytest.mark.parametrize("norm", [None, "layer", "batch"])
@pytest.mark.parametrize("name", CANDIDATES)
def test_wrong_numbers_are_not_timed(molecules, name, norm):
    torch.manual_seed(0)
    model = GCN(molecules.num_features, 8, 3, 1, backend="pyg", norm=norm)
    candidate = build(name, model, CPU)
    batch = molecules.batch(slice(None))
    right = exact(model, batch)
    check(candidate, right, batch)
    with torch.no_grad():
        dict(candidate.module.named_parameters(prefix="")).popitem()[1].add_(1e-3)  # the head's bias
    with pytest.raises(UserError, match=f"{name} is wrong"):
        check(candidate, right, batch)


@needs_extension
def test_wrong_inference_is_not_timed(molecules):
    torch.manual_seed(0)
    model = GCN(molecules.num_features, 8, 3, 1, backend="pyg")
    candidate = build("fused", model, CPU)
    batch = molecules.batch(slice(None))
    right = exact(model, batch)
    check(candidate, right, batch)
    candidate.module.register_forward_hook(lambda module, _, out: out if torch.is_grad_enabled() else out + 1e-3)
    with pytest.raises(UserError, match="fused is wrong"):
        check(candidate, right, batch)


@needs_extension
def test_a_wrong_candidate_stops_the_measurement(molecules):
    def spoil(module, _, out):
        return out + 1e-3 if isinstance(module, GCN) and module.backend.name == "fused" else None

    table = Table(None, KEY)
    with register_module_forward_hook(spoil), pytest.raises(UserError, match="fused is wrong: relative error"):
        list(measure(molecules, "four", grid(2), table))
    assert table.rows == []


@needs_extension
def test_norms_reach_every_candidate(molecules):
    rows = list(measure(molecules, "four", grid(3, norm="batch", works=("forward",)), Table(None, KEY)))
    assert rows[0]["norm"] == "batch" and all(rows[0][f"{name}_ms"] > 0 for name in CANDIDATES)


@needs_extension
def test_rounding_of_pyg_is_its_own(molecules):
    """PyG's batch norm over many atoms may be further from float64 than fused may be."""
    grid = Grid(num_layers=(3,), batch_sizes=(2048,), hidden_channels=8, norm="batch", candidates=("fused", "pyg"), works=("forward",))
    assert next(measure(molecules, "four", grid, Table(None, KEY)))["pyg_ms"] > 0


@needs_extension
def test_less_precise_products_are_asked_for_while_they_are_measured(molecules):
    before, seen = torch.get_float32_matmul_precision(), []
    for _ in measure(molecules, "four", grid(2, works=("forward",), precision="medium"), Table(None, KEY)):
        seen.append(torch.get_float32_matmul_precision())
    assert seen == ["medium"] and torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_captured_steps_and_launches_on_a_gpu(molecules, precision):
    candidates = ("fused", "fused_captured", "fused_99kb", "pyg")
    grid = Grid("cuda", (3,), (4,), 8, None, candidates, repeats=2, precision=precision)
    rows = {row["work"]: row for row in measure(molecules, "four", grid, Table(None, KEY))}
    assert rows["forward_backward"]["pyg_launches"] > rows["forward_backward"]["fused_captured_launches"] > 0
    assert rows["step"]["fused_captured_ms"] > 0 and rows["step"]["fused_99kb_ms"] > 0
    ours = min(rows["step"]["fused_ms"], rows["step"]["fused_captured_ms"])
    assert rows["step"]["against_pyg"] == pytest.approx(rows["step"]["pyg_ms"] / ours, rel=0.01)  # the plan for another GPU does not count
