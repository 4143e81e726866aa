"""Trees that predict together with a network are explained with it, and all parts add up to the run's prediction."""

import csv
import math
from collections import defaultdict

import pytest

from molgcn import load
from molgcn.config.run import Config, parse
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")
SMILES = ["CCO", "c1ccccc1O", "CC(=O)O", "CCCCN"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a network and trees that predict numbers, one by its logarithm, and two and three classes."""
    folder = tmp_path_factory.mktemp("blended")
    molecules = ["C" * (n % 12 + 1) + "NO"[n % 2] + "C" * (n // 12) for n in range(120)]
    rows = [f"{text},{len(text) + 0.1 * n:g},{2.0 ** len(text):g},{n % 2},{n % 3}" for n, text in enumerate(molecules)]
    (folder / "x.csv").write_text("smiles,y,z,two,three\n" + "\n".join(rows))
    values = {
        "dataset": {
            "name": "csv",
            "path": str(folder / "x.csv"),
            "targets": ["y", "z", "two", "three"],
            "tasks": {"y": "regression", "z": "regression", "two": "classification", "three": "multiclass"},
            "transforms": {"z": "log10"},
            "features": "general",
            "descriptor_generators": ["physchem"],
            "tree_generators": ["physchem", "maccs"],
            "batch_size": 16,
        },
        "task": "mixed",
        "model": {"hidden_channels": 8, "num_layers": 2},
        "training": {"report": False, "blend": "trees"},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    return train(parse(Config, values), folder / "run").folder


def explained(run, output, **values):
    values = {"device": "cpu", "num_workers": 0, "ckpt": str(run), "output": str(output), "method": "masking", "orders": 2, **values}
    (output.parent / "new.csv").write_text("\n".join(["smiles", *SMILES]))
    explain(parse(ExplainConfig, {**values, "input": str(output.parent / "new.csv")}))
    with open(output / "molecules.csv", newline="") as molecules, open(output / "contributions.csv", newline="") as parts:
        return [*csv.DictReader(molecules)], [*csv.DictReader(parts)], (output / "index.html").read_text()


@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("y", "masking"),
        ("two", "integrated_gradients"),
        ("z", "integrated_gradients"),
        *(pytest.param(*both, marks=pytest.mark.slow) for both in (("y", "integrated_gradients"), ("z", "masking"), ("two", "masking"))),
    ],
)
def test_all_parts_add_up_to_what_both_predict(run, tmp_path, target, method):
    if method == "integrated_gradients":
        pytest.importorskip("captum")
    molecules, parts, page = explained(run, tmp_path / "why", target=target, method=method)
    predicted = load(run).predict(SMILES).to_frame()[f"{target} predicted" if target != "two" else "two probability"]
    column = next(name for name in molecules[0] if name.endswith("predicted") or name.startswith("logit"))
    sums = defaultdict(float)
    for part in parts:
        sums[int(part["row"])] += float(part["contribution"])
        assert part["part"] != "descriptor" or float(part["contribution"]) != 0
    for row, (molecule, expected) in enumerate(zip(molecules, predicted, strict=True)):
        expected = math.log(expected / (1 - expected)) if target == "two" else expected
        assert float(molecule[column]) == pytest.approx(expected, rel=2e-4, abs=2e-4)
        groups = [float(molecule[name]) for name in ("atoms and bonds", "physchem", "physchem of trees", "maccs")]
        assert sum(groups) == pytest.approx(sums[row], rel=1e-4, abs=1e-4)
        size = sum(abs(float(part["contribution"])) for part in parts if part["row"] == str(row))
        assert abs(sums[row] - float(molecule["difference"])) < 0.01 * size
        assert all(groups)
    assert "predict together with the network, which counts" in page


def test_each_of_three_classes_has_its_logit(run, tmp_path):
    predicted = load(run).predict(SMILES).to_frame()
    logits = [explained(run, tmp_path / f"why_{number}", target="three", class_number=number)[0] for number in range(3)]
    for row, molecules in enumerate(zip(*logits, strict=True)):
        found = [float(molecule[f"logit of three class {number}"]) for number, molecule in enumerate(molecules)]
        expected = [math.log(predicted[f"three probability {number}"][row]) for number in range(3)]
        for number in (1, 2):
            assert found[number] - found[0] == pytest.approx(expected[number] - expected[0], rel=1e-3, abs=1e-3)
