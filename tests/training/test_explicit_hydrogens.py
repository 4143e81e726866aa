"""A run whose hydrogens are atoms keeps them in prediction, evaluation and export, and when it is resumed."""

import pytest

from molgcn.config.run import parse
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_molecules
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import metadata
from molgcn.predict import predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.inference import predict_molecules
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")


def test_a_run_keeps_them(small_config, tmp_path):
    smiles = [f"{'C' * (n % 9 + 1)}{'NO'[n % 2]}" for n in range(40)]
    (tmp_path / "x.csv").write_text("smiles,y\n" + "".join(f"{text},{len(text) / 3}\n" for text in smiles))
    dataset = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["y"], "subset": None, "cache_dir": str(tmp_path / "cache")}
    options = dataset | {"features": "general", "explicit_hydrogens": True}
    run = train(small_config(dataset=options), tmp_path / "run")
    module = load_module(tmp_path / "run")
    assert module.features == "general:explicit_hydrogens" and metadata(module)["hydrogens"] == "explicit"
    molecules, _, data_hash = load_molecules(module.config.dataset)
    assert molecules.features == module.features and molecules.num_nodes_per_graph[0] == 7  # CH3 NH2
    plain, _, other = load_molecules(DatasetConfig(**dataset, features="general"))
    assert other != data_hash and plain.num_nodes_per_graph[0] == 2
    values = predict_smiles(Ensemble.load([tmp_path / "run"]), smiles, num_workers=0).values
    assert values == pytest.approx(predict_molecules(module, molecules, 16), rel=1e-5)
    given = {"ckpt": str(run.folder), "device": "cpu", "dataset": {"path": str(tmp_path / "x.csv")}}
    assert "all/mae/y" in evaluate(parse(EvaluateConfig, given)).metrics
    with pytest.raises(UserError, match=r"trained with dataset\.explicit_hydrogens=True, which cannot become False"):
        train(small_config(dataset=options | {"explicit_hydrogens": False}, resume=str(run.folder)), run.folder)
    with pytest.raises(UserError, match="does not go with features=zinc"):
        load_molecules(DatasetConfig(**dataset, features="zinc", explicit_hydrogens=True))
