"""Molecules, files and predictions computed by hand, which the tests of prediction share."""

import csv
import gzip

import numpy as np
import torch

from molgcn.config.run import BackendConfig, parse
from molgcn.data import PackedMolecules
from molgcn.predict import PredictConfig
from molgcn.training.restore import load_module

SMILES = ["CCO", "CC(=O)N", "C1CC1", "c1ccccc1O", "C", "N#CC"]
LOGP, TPSA = "logp predicted", "tpsa [A^2] predicted"


def config(**values):
    return parse(PredictConfig, {"device": "cpu", **values})


def rows_of(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def expected(run, smiles=SMILES):
    """Return the predictions computed by hand, from features, float64 weights, PyG's layers and the scaling."""
    module = load_module(run.folder, BackendConfig(name="pyg")).double()
    molecules = PackedMolecules.from_smiles(smiles, features="qm9")
    batch = molecules.batch(slice(None))
    batch.x = batch.x.double()
    with torch.no_grad():
        return (module.model(batch) * module.target_std + module.target_mean).numpy()


def values_of(rows):
    return np.array([[float(row[LOGP]), float(row[TPSA])] for row in rows])
