"""A run with trees beside its network trains, says what each part gives, and is used by every command."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from run_cases import rows_of

from molgcn.blending.blend import FILE, FOLDER
from molgcn.blending.shares import OF_CLASSES, OF_NUMBERS
from molgcn.config.run import BackendConfig, Config, parse
from molgcn.data.config import DatasetConfig
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.load import load_molecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.export import ExportConfig, export
from molgcn.fingerprint import FingerprintConfig, fingerprint
from molgcn.metrics.comparison import NETWORK, TREES
from molgcn.predict import PredictConfig, predict
from molgcn.replicates.run import train_all
from molgcn.resources import resource
from molgcn.screening.ensemble import Ensemble
from molgcn.training import blending
from molgcn.training.blending import check_blend, settled_blend
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
GENERATORS = ["erg"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return a table of 200 built-in molecules, beside a second one, with a number that has missing values and a class."""
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = list(csv.DictReader(file))[:6000:30]
    found = tmp_path_factory.mktemp("data") / "mine.csv"
    lines = [
        f"{row['smiles']},{'CO' if number % 2 else 'O'},{row['logp'] if number % 9 else ''},{int(float(row['tpsa']) > 40)},{number % 7}"
        for number, row in enumerate(rows)
    ]
    found.write_text("\n".join(["smiles,solvent,logp,polar,ph", *lines]) + "\n")
    return found


def config_of(path, **changes):
    values = {
        "dataset": {
            "name": "csv",
            "path": str(path),
            "smiles": ["smiles", "solvent"],
            "targets": ["logp", "polar"],
            "tasks": {"logp": "regression", "polar": "classification"},
            "descriptors": ["ph"],
            "tree_generators": GENERATORS,
            "calibration_fraction": 0.2,
            "batch_size": 64,
        },
        "model": {"hidden_channels": 8, "num_layers": 2, "head_layers": 0, "dropout": 0.1},
        "task": "mixed",
        "logger": {"name": "csv"},
        "training": {"blend": "trees", "calibration": "auto", "bootstrap": 0},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    for key, change in changes.items():
        values[key] = {**values.get(key, {}), **change} if isinstance(change, dict) else change
    return parse(Config, values)


@pytest.fixture(scope="module")
def run(path, tmp_path_factory):
    """Return the configuration, the result and the folder of a run."""
    folder = tmp_path_factory.mktemp("blended") / "run"
    config = config_of(path)
    return config, train(config, folder), folder


def test_it_says_what_each_part_gives(run):
    config, result, folder = run
    data = MoleculeDataModule(config.dataset, config.loader, "reference", 0)
    module = load_module(folder)
    for part in ("val", "test"):
        molecules = data.part(part)
        for of, found in (
            ("all", result.metrics),
            ("network", result.comparison.baselines[NETWORK]),
            ("trees", result.comparison.baselines[TREES]),
        ):
            expected = module.task.measure(predict_molecules(module, molecules, 64, of), molecules.targets)
            for metric in ("mae/logp", "roc_auc/polar"):
                assert found[f"{part}/{metric}"] == pytest.approx(expected[metric], rel=1e-5)
    page = (folder / "report.html").read_text()
    assert all(text in page for text in ("the network alone", "the boosted trees (LightGBM) alone", "% network and"))
    assert page.count(">the trees<") >= 2
    saved = json.loads((folder / FOLDER / FILE).read_text())
    assert saved["targets"] == ["logp", "polar"] and all(0 < share < 1 for share in saved["network"])
    assert {path.name for path in (folder / FOLDER).iterdir()} == {FILE, "target_0.txt", "target_1.txt"}


def test_trees_know_both_molecules_of_a_row_and_the_columns(run):
    config, _, folder = run
    molecules, _, _ = load_molecules(config.dataset)
    module = load_module(folder)
    assert molecules.tree_descriptors.shape == (200, 2 * 315) and module.descriptor_names == ["ph"]
    assert module.blend.trees[0].num_features == 1 + 2 * 315
    np.testing.assert_array_equal(molecules[3:5].tree_descriptors, molecules.tree_descriptors[3:5])


def test_predictions_are_those_of_the_report(run, path, tmp_path):
    _, result, folder = run
    written = {row["row"]: row for row in rows_of(folder / "predictions_test.csv")}
    predict(PredictConfig(ckpt=str(folder), input=str(path), output=str(tmp_path / "p.csv"), device="cpu"))
    predicted = rows_of(tmp_path / "p.csv")
    for row, one in written.items():
        for column in ("logp predicted", "polar probability", "logp conformal lower", "polar calibrated probability"):
            assert float(predicted[int(row)][column]) == pytest.approx(float(one[column]), rel=1e-4)
    evaluation = evaluate(EvaluateConfig(ckpt=str(folder), device="cpu", bootstrap=0, output=str(tmp_path / "e")))
    assert evaluation.metrics["test/mae/logp"] == pytest.approx(result.metrics["test/mae/logp"])
    saved = json.loads((tmp_path / "e" / "metrics.json").read_text())
    assert saved["baselines"][TREES].keys() >= {"val/mae/logp", "test/mae/logp"}


def test_the_same_seed_gives_the_same_trees_and_a_resumed_run_keeps_its_kind(run, path, tmp_path):
    _, result, folder = run
    again = train(config_of(path, training={"report": False}), tmp_path / "again")
    assert again.metrics == result.metrics
    for name in ("target_0.txt", "target_1.txt"):
        assert (folder / FOLDER / name).read_bytes() == (tmp_path / "again" / FOLDER / name).read_bytes()
    more = config_of(path, trainer={"max_epochs": 3}, resume=str(tmp_path / "again"), training={"report": False})
    resumed = train(more, tmp_path / "again")
    assert resumed.epochs == 3 and TREES in resumed.comparison.baselines
    without = config_of(path, dataset={"tree_generators": None}, training={"blend": "none"}, resume=str(tmp_path / "again"))
    with pytest.raises(UserError, match=r"training\.blend=trees, which cannot become none"):
        train(without, tmp_path / "again")


def test_dropout_and_uncertainty(run, tmp_path):
    _, _, folder = run
    ensemble = Ensemble.load([folder], dropout_samples=3)
    molecules, _, _ = load_molecules(ensemble.members[0].config.dataset)
    passes = ensemble.predict(molecules[:5])
    assert passes.shape[:2] == (3, 5) and passes.std(axis=0).max() > 0


@pytest.mark.parametrize(
    "changes",
    [pytest.param({"training": {"ensemble": 2}}, marks=pytest.mark.slow), {"dataset": {"split": "cv", "folds": 2}}],
    ids=["ensemble", "folds"],
)
def test_several_trainings(path, tmp_path, changes):
    config = config_of(path, **{"training": {"calibration": "none", **changes.get("training", {})}}, dataset=changes.get("dataset", {}))
    result = train_all(config, tmp_path / "run")
    assert len([*(tmp_path / "run").glob("*/trees/blend.json")]) == 2
    page = (tmp_path / "run" / "report.html").read_text()
    assert "the boosted trees (LightGBM) alone" in page
    if not result.deviations:
        assert result.comparison.baselines.keys() >= {NETWORK, TREES}
    predict(PredictConfig(ckpt=str(tmp_path / "run"), input=str(path), output=str(tmp_path / "p.csv"), device="cpu"))
    assert len(rows_of(tmp_path / "p.csv")) == 200


def test_other_commands(run, path, tmp_path):
    """`explain` explains network and trees together, also where a row is several molecules; `export` takes the network alone."""
    _, _, folder = run
    fingerprint(FingerprintConfig(ckpt=str(folder), input=str(path), output=str(tmp_path / "f.npy"), device="cpu"))
    table = tmp_path / "two.csv"
    table.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")
    explain(ExplainConfig(ckpt=str(folder), input=str(table), target="logp", output=str(tmp_path / "x"), method="masking", device="cpu"))
    predict(PredictConfig(ckpt=str(folder), input=str(table), output=str(tmp_path / "p.csv"), device="cpu"))
    for explained, predicted in zip(rows_of(tmp_path / "x" / "molecules.csv"), rows_of(tmp_path / "p.csv"), strict=True):
        assert float(explained["logp predicted"]) == pytest.approx(float(predicted["logp predicted"]), rel=1e-3)
        assert abs(float(explained["completeness error"])) < 1e-5
    with pytest.raises(UserError, match=r"boosted trees \(training\.blend=trees\), which \.onnx files do not hold.*network_only=true"):
        export(ExportConfig(ckpt=str(folder), output=str(tmp_path / "model.onnx")))
    assert export(ExportConfig(ckpt=str(folder), output=str(tmp_path / "model.pt2"), network_only=True)) < 1e-5


def test_a_checkpoint_without_its_run_is_refused(run, tmp_path):
    _, _, folder = run
    shutil.copy(folder / "checkpoints" / "best.ckpt", tmp_path)
    with pytest.raises(UserError, match="its trees are in the folder trees of its run"):
        load_module(tmp_path / "best.ckpt", BackendConfig())


def test_options_are_checked(path, monkeypatch):
    with pytest.raises(UserError, match=r"dataset\.tree_generators=\['erg'\] are for trees, and training\.blend=none has none"):
        config_of(path, training={"blend": "none"})
    config = config_of(path, dataset={"tree_generators": None, "descriptor_generators": ["erg"]})
    assert config.dataset.tree_generators == ["rdkit2d", "morgan_counts", "avalon_counts"]
    config = config_of(path)
    data = MoleculeDataModule(config.dataset, config.loader, "reference", 0)
    monkeypatch.setattr(blending, "MOST", 10)
    with pytest.raises(UserError, match="at most 10 training molecules"):
        check_blend(config, data)


def test_without_validation_the_shares_are_those_expected(path, tmp_path, caplog):
    config = config_of(path, dataset={"split_fractions": [0.8, 0, 0.2]}, training={"report": False})
    train(config, tmp_path / "run")
    assert json.loads((tmp_path / "run" / FOLDER / FILE).read_text())["network"] == [OF_NUMBERS, OF_CLASSES]
    assert "the network counts 1 / 2 for numbers and 1 / 4 for classes" in caplog.text


def test_a_large_set_has_no_trees_unless_they_are_asked_for(path, caplog):
    config = config_of(path, training={"blend": "auto"}, dataset={**config_of(path).to_dict()["dataset"], "tree_generators": None})
    assert config.dataset.tree_generators == ["auto"]
    assert config.dataset.tree_generators_of(20_000) == ["rdkit2d", "morgan_counts", "avalon_counts", "erg"]
    assert config.dataset.tree_generators_of(20_001) == []
    molecules, _, _ = load_molecules(config_of(path).dataset)
    caplog.set_level("INFO")
    chosen = settled_blend(config, molecules)
    assert (chosen.training.blend, chosen.dataset.tree_generators) == ("trees", config.dataset.tree_generators_of(200))
    chosen = settled_blend(config, replace(molecules, tree_descriptors=None))
    assert (chosen.training.blend, chosen.dataset.tree_generators) == ("none", None)
    assert "training.blend=trees fits them all the same" in caplog.text


def test_what_auto_packed_is_read_from_the_cache_by_the_saved_run(path, tmp_path):
    few, cache = tmp_path / "few.csv", tmp_path / "cache"
    few.write_text("".join(path.read_text().splitlines(keepends=True)[:41]))
    dataset = {"smiles": "smiles", "tree_generators": None, "cache_dir": str(cache), "calibration_fraction": 0}
    config = config_of(few, dataset=dataset, training={"blend": "auto", "calibration": "none", "report": False})
    train(config, tmp_path / "run")
    (packed,) = (one for one in (cache / "packed").iterdir() if one.is_dir())
    evaluate(EvaluateConfig(ckpt=str(tmp_path / "run"), device="cpu", bootstrap=0, output=str(tmp_path / "e")))
    assert load_module(tmp_path / "run").config.dataset.tree_generators == config.dataset.default_tree_generators
    assert [one for one in (cache / "packed").iterdir() if one.is_dir()] == [packed]
    without, _, _ = load_molecules(replace(config.dataset, tree_generators=None))
    assert without.tree_descriptors is None


def test_what_auto_packed_without_trees_is_read_where_none_are_named(tmp_path):
    (tmp_path / "many.csv").write_text("smiles,y\n" + "C,1\n" * 20_001)
    many = {"path": str(tmp_path / "many.csv"), "targets": ["y"], "cache_dir": str(tmp_path), "num_workers": 0}
    config = DatasetConfig(name="csv", tree_generators=["auto"], **many)
    for names in (["auto"], None):
        assert load_molecules(replace(config, tree_generators=names))[0].tree_descriptors is None
    assert len([one for one in (tmp_path / "packed").iterdir() if one.is_dir()]) == 1
