"""The index of a run's training molecules is written in training and used in prediction."""

import csv
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from rdkit import Chem

from molgcn.config.run import Config, parse
from molgcn.config.training import TrainingConfig
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.domain.index import FILE, DomainIndex
from molgcn.errors import UserError
from molgcn.predict import PredictConfig, predict, predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.restore import load_module
from molgcn.training.train import train
from molgcn.training.trained_on import index_files, save_index

NAMES = ["nearest similarity", "unseen atoms", "unseen bonds", "size outside"]


@pytest.fixture
def run(trained_run, tmp_path):
    """Return a copy of the short run that may be written to."""
    return shutil.copytree(trained_run.folder, tmp_path / "run")


@pytest.fixture
def trained_on(trained_config):
    """Return the molecules that the run was trained on."""
    return load_dataset(parse(Config, trained_config).dataset).part("train")


def checkpoints_of(run):
    return [run / "checkpoints" / name for name in ("best.ckpt", "last.ckpt")]


def config(run, tmp_path, **values):
    files = {"input": str(tmp_path / "in.smi"), "output": str(tmp_path / "p.csv")}
    return parse(PredictConfig, {"ckpt": str(run), "device": "cpu", "domain": True, **files, **values})


def where(place, standardize="none"):
    return Config(dataset=DatasetConfig(standardize=standardize), training=TrainingConfig(domain_index=place))


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_predict_writes_the_columns_beside_the_predictions(run, trained_on, tmp_path, num_workers):
    save_index(where("run"), trained_on, run, checkpoints_of(run))
    smiles = [trained_on.smiles[3], "xx", "CCCCCCCCCCCC", "C#CC#CO"]
    (tmp_path / "in.smi").write_text("\n".join(smiles))
    predict(config(run, tmp_path, on_error="nan", num_workers=num_workers, batch_size=2))
    rows = rows_of(tmp_path / "p.csv")
    assert list(rows[0])[-5:] == [*NAMES, "error"]
    assert [rows[0][name] for name in NAMES] == ["1", "0", "0", "0"]
    assert [rows[1][name] for name in NAMES] == ["nan"] * 4
    assert rows[2]["size outside"] == "1" and float(rows[2]["nearest similarity"]) < 1
    found = predict_smiles(Ensemble.load([run]), [smiles[0], *smiles[2:]], num_workers=0, domain=[run / FILE])
    for name in NAMES:
        np.testing.assert_allclose(found.beside[name], [float(rows[place][name]) for place in (0, 2, 3)], rtol=1e-6)
    assert all("domain_index" not in load_checkpoint(path) for path in checkpoints_of(run))


def test_structures_are_compared_as_their_smiles(run, trained_on, tmp_path):
    save_index(where("run"), trained_on, run, [])
    with Chem.SDWriter(str(tmp_path / "m.sdf")) as writer:
        for text in [trained_on.smiles[0], "CCCO"]:
            writer.write(Chem.AddHs(Chem.MolFromSmiles(text)))
    predict(config(run, tmp_path, input=str(tmp_path / "m.sdf")))
    found = predict_smiles(Ensemble.load([run]), [trained_on.smiles[0], "CCCO"], num_workers=0, domain=[run / FILE])
    assert [float(row["nearest similarity"]) for row in rows_of(tmp_path / "p.csv")] == pytest.approx(found.beside["nearest similarity"])


def test_it_goes_into_the_checkpoints_where_that_is_asked_for(run, trained_on, tmp_path):
    before = load_checkpoint(checkpoints_of(run)[0])
    save_index(where("checkpoint"), trained_on, run, checkpoints_of(run))
    (tmp_path / "away").mkdir()
    lonely = shutil.copy(checkpoints_of(run)[0], tmp_path / "away" / "model.ckpt")
    (tmp_path / "in.smi").write_text("CCO\nCCCCN\n")
    predict(config(lonely, tmp_path))
    alone = (tmp_path / "p.csv").read_text()
    predict(config(run, tmp_path))
    assert (tmp_path / "p.csv").read_text() == alone
    (first, second) = index_files([lonely, run / "checkpoints" / "last.ckpt"], tmp_path / "away")
    assert second == run / FILE
    assert all(
        np.array_equal(one, other)
        for one, other in zip(DomainIndex.load(first).arrays().values(), DomainIndex.load(second).arrays().values(), strict=True)
    )
    after = load_checkpoint(lonely)
    assert after.keys() - before.keys() == {"domain_index"}
    assert load_module(lonely).task == load_module(run).task


def test_checkpoints_of_one_run_share_its_index(run, trained_on, tmp_path):
    save_index(where("run"), trained_on, run, [])
    assert index_files(checkpoints_of(run), tmp_path) == [run / FILE]


def test_a_run_without_one_says_how_to_write_it(run, tmp_path):
    (tmp_path / "in.smi").write_text("CCO\n")
    with pytest.raises(UserError, match=r"no index.*Write it with resume=.*run training\.domain_index=run") as error:
        predict(config(run, tmp_path))
    assert "\n" not in str(error.value) and not (tmp_path / "p.csv").exists()
    lonely = shutil.copy(checkpoints_of(run)[0], tmp_path / "model.ckpt")
    with pytest.raises(UserError, match=r"no index.*Give the folder of its run, or train with training\.domain_index=checkpoint"):
        predict(config(lonely, tmp_path))


def test_what_the_message_says_works(trained_config, trained_on, run, tmp_path):
    """Resuming the finished run writes the index of its training part and trains no more."""
    before = load_checkpoint(checkpoints_of(run)[0])["global_step"]
    base = parse(Config, trained_config)
    train(replace(base, resume=str(run), training=replace(base.training, report=False, domain_index="run")), run)
    index = DomainIndex.load(run / FILE)
    assert all(np.array_equal(one, DomainIndex.of(trained_on, num_workers=0).arrays()[name]) for name, one in index.arrays().items())
    assert load_checkpoint(checkpoints_of(run)[0])["global_step"] == before


@pytest.mark.parametrize("damage", [{"fingerprints": torch.zeros(3, 7)}, {"atoms": "x"}, {}, []])
def test_a_damaged_one_in_a_checkpoint_is_named(run, tmp_path, damage):
    path = tmp_path / "model.ckpt"
    write(load_checkpoint(checkpoints_of(run)[0]) | {"domain_index": damage}, path)
    with pytest.raises(UserError, match=r"model\.ckpt holds a damaged index of training molecules"):
        index_files([path], tmp_path)
