import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch
from evaluate_cases import config, rows_of
from evaluate_cases import run as run
from matplotlib.figure import Figure

from molgcn.comparison.baselines import forest_predictions
from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.evaluate import evaluate, main, spell_out_dataset
from molgcn.metrics.comparison import without_nan
from molgcn.model import load
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")


@pytest.mark.parametrize("backend", ["fused", pytest.param("pyg", marks=pytest.mark.slow)])
def test_its_own_data_gives_its_own_results(trained_run, run, capsys, backend, empty_figures, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", empty_figures)
    result = evaluate(config(ckpt=str(run), backend={"name": backend}, dataset={"batch_size": 7}))
    assert result.metrics.keys() == trained_run.metrics.keys()
    for key, value in trained_run.metrics.items():
        assert result.metrics[key] == pytest.approx(value, rel=1e-4, abs=1e-5, nan_ok=True), key
    report = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert report["metrics"] == without_nan(result.metrics)
    interval, guess = report["intervals"]["test/mae/logp"], report["baselines"]["training mean"]["test/mae/logp"]
    assert interval["low"] < result.metrics["test/mae/logp"] < interval["high"]
    assert interval == pytest.approx(asdict(trained_run.comparison.intervals["test/mae/logp"]), rel=1e-4)  # seeded by the run
    assert guess == pytest.approx(trained_run.comparison.baselines["training mean"]["test/mae/logp"])
    assert report["molecules"] == {"train": 160, "val": 20, "test": 20}
    assert report["units"] == {"logp": "", "tpsa": "A^2"}
    mine, theirs = rows_of(run / "evaluation" / "predictions_test.csv"), rows_of(run / "predictions_test.csv")
    assert [row["row"] for row in mine] == [row["row"] for row in theirs]
    difference = [float(a["logp predicted"]) - float(b["logp predicted"]) for a, b in zip(mine, theirs, strict=True)]
    assert np.abs(difference).max() < 1e-5
    assert (run / "evaluation" / "parity_test.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "test MAE" in printed
    assert "A^2" in printed and "95\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}from" in printed and "1,000 bootstrap resamples" in printed
    assert f"{trained_run.metrics['test/mae/tpsa']:.3g}"[:3] in printed


def test_a_checkpoint_away_from_its_run_draws_the_same_split(trained_run, run, tmp_path):
    lonely = shutil.copy(run / "checkpoints" / "best.ckpt", tmp_path / "model.ckpt")
    result = evaluate(config(ckpt=str(lonely), output=str(tmp_path / "out")))
    assert result.metrics["test/mae/logp"] == pytest.approx(trained_run.metrics["test/mae/logp"], rel=1e-4)
    assert (tmp_path / "out" / "metrics.json").is_file()


def test_a_checkpoint_of_before_copies_stayed_together_draws_its_own_split(trained_config, tmp_path):
    """A checkpoint of format 2 lacks `group_duplicates`; some validation and test molecules had copies in its training part."""
    (tmp_path / "x.csv").write_text(
        "smiles,y\n" + "".join(f"{text},{n}\n" for n in range(1, 21) for text in ("C" * n + "O", "O" + "C" * n))
    )
    data = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["y"], "group_duplicates": False}
    run = train(parse(Config, {**trained_config, "dataset": data, "training": {"report": False}}), tmp_path / "run")
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    checkpoint["molgcn"]["format"] = 2
    del checkpoint["molgcn"]["config"]["dataset"]["group_duplicates"], checkpoint["molgcn"]["config"]["dataset"]["duplicates"]
    torch.save(checkpoint, tmp_path / "old.ckpt")
    result = evaluate(config(ckpt=str(tmp_path / "old.ckpt"), output=str(tmp_path / "out")))
    splits = json.loads((tmp_path / "run" / "splits.json").read_text())
    assert [int(row["row"]) for row in rows_of(tmp_path / "out" / "predictions_test.csv")] == splits["test"]
    assert result.metrics["test/mae/y"] == pytest.approx(run.metrics["test/mae/y"], rel=1e-4)


def test_another_file(run, tmp_path):
    """MAE, RMSE and R2 equal numbers computed by hand; a missing value and a row without molecule are left out."""
    path = tmp_path / "other.csv"
    path.write_text("SMILES,a,b\nCCO,1,10\nCC,,20\nC1CC,5,5\nc1ccccc1,2.5,30\n")
    data = {"path": str(path), "smiles": "SMILES", "targets": ["a", "b"], "on_error": "skip", "cache_dir": str(tmp_path)}
    result = evaluate(config(ckpt=str(run), dataset=data))
    assert result.folder == run / "evaluation_other"
    rows = rows_of(result.folder / "predictions_all.csv")
    assert [row["row"] for row in rows] == ["0", "1", "3"]
    assert [row["logp"] for row in rows] == ["1", "", "2.5"]
    for name, kept in (("logp", [0, 2]), ("tpsa", [0, 1, 2])):
        column = name if name == "logp" else "tpsa [A^2]"
        true = np.array([float(rows[i][column]) for i in kept])
        error = np.array([float(rows[i][f"{column} predicted"]) for i in kept]) - true
        assert result.metrics[f"all/mae/{name}"] == pytest.approx(np.abs(error).mean(), rel=1e-4)
        assert result.metrics[f"all/rmse/{name}"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)
        assert result.metrics[f"all/r2/{name}"] == pytest.approx(1 - (error**2).sum() / ((true - true.mean()) ** 2).sum(), rel=1e-3)
    assert rows_of(result.folder / "skipped.csv")[0]["smiles"] == "C1CC"


def test_another_file_has_the_baselines_of_the_run(trained_config, tmp_path, caplog):
    """The forest is fitted to the run's own training molecules; if they are gone, a line says that it is left out."""
    (tmp_path / "x.csv").write_text("smiles,y\n" + "".join(f"{'C' * n}O,{n}\n" for n in range(1, 21)))
    (tmp_path / "other.csv").write_text("smiles,y\n" + "".join(f"{'C' * n}N,{n}\n" for n in range(1, 9)))
    data = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["y"]}
    run = tmp_path / "run"
    train(parse(Config, {**trained_config, "dataset": data, "training": {"report": False, "baseline": "rf"}}), run)
    splits = json.loads((run / "splits.json").read_text())
    trained = [f"{'C' * (row + 1)}O" for row in splits["train"]]
    asked, true = [f"{'C' * n}N" for n in range(1, 9)], np.arange(1.0, 9)
    forest = forest_predictions(trained, np.array(splits["train"])[:, None] + 1.0, asked, 0, parse(Config, trained_config).seed)[:, 0]

    def baselines(**values):
        folder = evaluate(config(ckpt=str(run), dataset={"path": str(tmp_path / "other.csv")}, **values)).folder
        return json.loads((folder / "metrics.json").read_text())["baselines"]

    assert baselines()["random forest"]["all/mae/y"] == pytest.approx(np.abs(forest - true).mean(), rel=1e-6)
    assert list(baselines(baseline="simple")) == ["training mean"] and not baselines(baseline="none")
    (tmp_path / "x.csv").unlink()
    assert list(baselines()) == ["training mean"] and "The random forest that the run was compared with is left out" in caplog.text
    with pytest.raises(UserError, match=r"x\.csv"):
        baselines(baseline="rf")


def test_one_molecule_has_no_r2(run, tmp_path):
    (tmp_path / "one.csv").write_text("smiles,logp,tpsa\nCCO,1,10\n")
    result = evaluate(config(ckpt=str(run), dataset={"path": str(tmp_path / "one.csv")}))
    assert np.isnan(result.metrics["all/r2/logp"])
    text = (result.folder / "metrics.json").read_text()
    assert json.loads(text)["metrics"]["all/r2/logp"] is None  # NaN is not JSON
    assert "NaN" not in text


def test_another_file_with_a_split_of_its_own(run, tmp_path):
    (tmp_path / "x.csv").write_text("smiles,logp,tpsa\n" + "".join(f"{'C' * n},{n},{n}\n" for n in range(1, 7)))
    (tmp_path / "s.json").write_text('{"train": [0, 1], "val": [3], "test": [5, 2, 4]}')
    result = evaluate(config(ckpt=str(run), dataset={"path": str(tmp_path / "x.csv"), "split_file": str(tmp_path / "s.json")}))
    rows = rows_of(result.folder / "predictions_test.csv")  # in the split's own order
    assert [row["smiles"] for row in rows] == ["CCCCCC", "CCC", "CCCCC"]
    expected = load(run).predict([row["smiles"] for row in rows]).values
    np.testing.assert_allclose([float(row["logp predicted"]) for row in rows], expected[:, 0], rtol=1e-5)
    assert np.isfinite(result.metrics["test/mae/logp"])


def test_qm9_keeps_its_units(trained_config, tmp_path):
    """A file of QM9 is in hartree and read in eV, whether it was trained on or comes later."""
    columns = "mol_id,smiles,gap\n"
    for name, first in (("qm9.csv", 1), ("later.csv", 21)):
        (tmp_path / name).write_text(
            columns + "".join(f"gdb_{i},{'C' * (i % 20 + 1)}O,{0.3 + i / 1000}\n" for i in range(first, first + 20))
        )
    data = {"name": "qm9", "path": str(tmp_path / "qm9.csv"), "targets": ["gap"], "cache_dir": str(tmp_path / "cache")}
    values = {**trained_config, "dataset": data, "training": {"report": False}}
    train(parse(Config, values), tmp_path / "run")
    result = evaluate(config(ckpt=str(tmp_path / "run"), dataset={"path": str(tmp_path / "later.csv")}))
    row = rows_of(result.folder / "predictions_all.csv")[0]
    assert float(row["gap [eV]"]) == pytest.approx(0.321 * 27.211386, rel=1e-5)


def test_values_in_another_unit_are_refused(run, tmp_path):
    (tmp_path / "run" / "x").mkdir()
    (tmp_path / "q.csv").write_text("mol_id,smiles,gap,mu\ngdb_1,C,0.3,1\ngdb_2,CC,0.3,2\n")
    data = {"path": str(tmp_path / "q.csv"), "name": "qm9", "targets": ["gap", "mu"], "cache_dir": str(tmp_path / "cache")}
    with pytest.raises(UserError, match=r"dataset.name=qm9 gives logp in eV, but the model predicts it in no unit"):
        evaluate(config(ckpt=str(run), dataset=data))


def test_columns_in_another_order_than_the_targets_are_refused(run, tmp_path):
    (tmp_path / "x.csv").write_text("smiles,logp,tpsa,other\nCCO,1,10,3\nCC,2,20,4\n")
    for columns, refused in ((["tpsa", "logp"], True), (["other", "logp"], True), (["other", "tpsa"], False), (["logp", "tpsa"], False)):
        given = config(ckpt=str(run), dataset={"path": str(tmp_path / "x.csv"), "targets": columns})
        if refused:
            with pytest.raises(UserError, match=r"would compare predictions of (logp|tpsa) with the column (tpsa|logp)\."):
                evaluate(given)
        else:
            evaluate(given)


def test_data_that_changed_since(run, tmp_path):
    provenance = json.loads((run / "provenance.json").read_text())
    (run / "provenance.json").write_text(json.dumps({**provenance, "data_hash": "0" * 64}))
    with pytest.raises(UserError, match=r"has changed since .*hash 000000000000, now"):
        evaluate(config(ckpt=str(run)))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ckpt": None}, "No checkpoint is named"),
        ({"dataset": {"targets": ["a", "b"]}}, "dataset.targets goes with dataset.path"),
        ({"dataset": {"path": "x.csv", "targets": ["logp"]}}, "names 1 columns; the model predicts logp, tpsa"),
        ({"dataset": {"path": "x.csv"}}, "no column 'tpsa'"),
        ({"dataset": {"path": "gone.csv"}}, "gone.csv cannot be read"),
        ({"dataset": {"split_file": "gone.json"}}, "gone.json cannot be read"),
        ({"output": "x.csv"}, "cannot be made"),
    ],
)
def test_mistakes_are_one_paragraph(run, tmp_path, monkeypatch, options, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("smiles,logp\nC,1\n")
    with pytest.raises(UserError, match=what) as error:
        evaluate(config(**{"ckpt": str(run), **options}))
    assert "\n" not in str(error.value)
    assert all(any(folder.iterdir()) for folder in run.glob("evaluation*"))


@pytest.mark.parametrize("split", ["train", "test", "all"])
def test_one_part(trained_run, run, split):
    result = evaluate(config(ckpt=str(run), split=split))
    assert {key.split("/")[0] for key in result.metrics} == {split}
    count = {"train": 160, "test": 20, "all": 200}[split]
    assert len(rows_of(result.folder / f"predictions_{split}.csv")) == count
    page = (result.folder / "report.html").read_text()
    assert f"Errors on {count} {'training' if split == 'train' else split} molecules" in page
    if split != "all":
        assert result.metrics[f"{split}/mae/tpsa"] == pytest.approx(trained_run.metrics[f"{split}/mae/tpsa"], rel=1e-4)


def test_what_was_not_split(run, tmp_path):
    (tmp_path / "x.csv").write_text("smiles,logp,tpsa\nC,1,2\nCC,1,2\n")
    with pytest.raises(UserError, match=r"split=test, but .*x.csv was not split.*dataset.split_file=.*split=all"):
        evaluate(config(ckpt=str(run), split="test", dataset={"path": str(tmp_path / "x.csv")}))


def test_how_a_data_set_is_named(run):
    assert spell_out_dataset("dataset=qm9") == "dataset.name=qm9"
    assert spell_out_dataset("dataset=my=file.csv") == "dataset.path=my=file.csv"
    assert spell_out_dataset("dataset.path=x") == "dataset.path=x"
    assert spell_out_dataset("split=test") == "split=test"
    own = evaluate(config(ckpt=str(run), split="test", dataset={"name": "builtin"}))
    assert own.folder == run / "evaluation"
    with pytest.raises(UserError, match="dataset=zinc has the target penalized_logp only"):
        evaluate(config(ckpt=str(run), dataset={"name": "zinc"}))


def test_the_command(run, cli, tmp_path):
    before = {*tmp_path.iterdir()}
    code, out, err = cli("ckpt=run", "dataset.batch_size=50", main=main)
    assert code == 0, err
    assert "train 160, val 20, test 20 molecules" in out
    assert "test R2" in out
    assert {*tmp_path.iterdir()} == before
    code, _, err = cli("ckpt=run", "dataset.batchsize=50", main=main)
    assert code == 2
    assert "Did you mean dataset.batch_size?" in err


@pytest.mark.slow
def test_the_command_on_other_files(run, cli, tmp_path):
    for name in ("other one.csv", "set.v1.csv", "set.v2.tsv"):
        (tmp_path / name).write_text("smiles,logp,tpsa\nCCO,1,10\nCC,2,20\n".replace(",", "\t" if name.endswith("tsv") else ","))
        code, out, err = cli("ckpt=run", f"dataset={name}", "split=all", main=main)
        assert code == 0, err
        assert "all 2 molecules" in out
    for name in ("other one", "set.v1", "set.v2"):  # one does not replace the other
        assert (run / f"evaluation_{name}" / "report.html").is_file()
