"""The recipe is cross-validated on sets of TDC's ADMET group, and the table has what the runs' results say."""

import csv

import pytest

from molgcn.files.json_file import read_json
from molgcn.resources import resource
from molgcn_benchmark.admet import KEY, gpu_seconds, measure, sheet
from molgcn_benchmark.results import Table

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
SMALL = ["trainer.max_epochs=1", "model.hidden_channels=8", "dataset.tree_generators=[erg]", "dataset.folds=2", "trainer.accelerator=cpu"]


@pytest.mark.slow
def test_a_row_has_the_means_over_the_folds(tmp_path):
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = list(csv.DictReader(file))[:6000:50]
    lines = [f"{number},{row['smiles']},{row['logp']}" for number, row in enumerate(rows)]
    (tmp_path / "caco2_wang_train_val.csv").write_text("\n".join(["Drug_ID,Drug,Y", *lines]))
    table = Table(tmp_path / "admet.csv", KEY)
    (row,) = measure(tmp_path, ["caco2_wang"], SMALL, tmp_path / "runs", table)
    results = [read_json(tmp_path / "runs" / "caco2_wang" / fold / "result.json") for fold in ("fold_0", "fold_1")]
    assert row["metric"] == "mae"
    for column, found in (
        ("blend", [one["metrics"]["test/mae/Y"] for one in results]),
        ("network", [one["baselines"]["the network"]["test/mae/Y"] for one in results]),
        ("trees", [one["baselines"]["the trees"]["test/mae/Y"] for one in results]),
    ):
        assert row[column] == pytest.approx(sum(found) / 2, abs=1e-4)
        assert row[f"{column}_std"] == pytest.approx(abs(found[0] - found[1]) / 2**0.5, abs=1e-4)
    assert [*measure(tmp_path, ["caco2_wang"], SMALL, tmp_path / "gone", Table(tmp_path / "admet.csv", KEY))] == [row]
    assert not (tmp_path / "gone").exists()
    assert sheet([row], {})[2].startswith("| caco2_wang | mae | ")


def test_seconds_of_a_gpu_stand_beside_those_of_a_cpu(tmp_path):
    (tmp_path / "admet_gpu.csv").write_text("set,fold,load_seconds,seconds\nherg,0,9.8,14.5\nherg,1,9.8,13.5\n")
    gpu = gpu_seconds(tmp_path / "admet_gpu.csv")
    scores = {name: 0.5 for part in ("network", "trees", "blend") for name in (part, f"{part}_std")}
    rows = [{"set": name, "metric": "roc_auc", **scores, "load_seconds": 7.2, "seconds": 27.1} for name in ("herg", "dili")]
    assert [line.split(" | ")[-2:] for line in sheet(rows, gpu)[2:]] == [["7 + 27", "10 + 14 |"], ["7 + 27", "- |"]]
    assert gpu_seconds(tmp_path / "none.csv") == {}
