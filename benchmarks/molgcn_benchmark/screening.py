"""Compare predictions for a file of SMILES: this project's `predict`, and the script that a PyTorch Geometric user would write."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from molgcn.config.run import BackendConfig, Config, parse
from molgcn.data.featurizers import get_featurizer
from molgcn.data.featurizers.fields import AtomFields
from molgcn.data.molecules import smiles_reader
from molgcn.data.workers import available_cores
from molgcn.predict import PredictConfig, predict
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.ready import prepare
from molgcn.tasks.regression import Regression
from molgcn.training.checkpoint_format import describe
from molgcn.training.module import MoleculeModule
from molgcn.training.restore import load_module

BATCH = 1024
FEATURES = "qm9"


@dataclass(frozen=True)
class Shape:
    """The size of a network, and the number of networks that predict together."""

    num_layers: int
    hidden_channels: int
    members: int = 1


@dataclass(frozen=True)
class ScreeningRow:
    """The seconds for a file of M molecules, and the microseconds per molecule of each stage by itself.

    `rdkit` (its MolFromSmiles, nothing else), `parse` (ours) and `featurise` (with packing) run on one core, `model` and `pyg_model` on
    all cores.
    """

    shape: Shape
    molecules: int
    ours: float
    pyg: float
    rdkit: float
    parse: float
    featurise: float
    model: float
    pyg_model: float
    difference: float


def screen(smiles: Sequence[str], shape: Shape, folder: Path) -> ScreeningRow:
    """Measure one network; both sides read and write a CSV file and use all cores.

    Args:
        smiles: SMILES that all parse.
        shape: size of the network, which has no norm and random weights.
        folder: folder for the files.
    """
    source, checkpoints = folder / "input.csv", [folder / f"model_{number}.ckpt" for number in range(shape.members)]
    with open(source, "w", newline="") as file:
        csv.writer(file).writerows([["smiles"], *([text] for text in smiles)])
    for seed, checkpoint in enumerate(checkpoints):
        save_untrained(shape, checkpoint, seed)
    ckpt = [str(checkpoint) for checkpoint in checkpoints]
    values = {"ckpt": ckpt, "input": str(source), "device": "cpu", "batch_size": BATCH, "num_workers": available_cores()}
    ours, pyg = folder / "ours.csv", folder / "pyg.csv"
    settings = parse(PredictConfig, {**values, "output": str(ours)})
    times = _seconds(lambda: predict(settings)), _seconds(lambda: pyg_script(checkpoints, source, pyg, available_cores()))
    return ScreeningRow(shape, len(smiles), *times, *stages(smiles, checkpoints), largest_difference(ours, pyg))


def save_untrained(shape: Shape, path: Path, seed: int = 0) -> None:
    """Write a checkpoint of an untrained network.

    Args:
        shape: the sizes of the network.
        path: the checkpoint.
        seed: the seed of its weights.
    """
    plain = {"norm": None, "residual": False, "last_activation": False, "head_layers": 0, "init": "kaiming"}
    model = {"num_layers": shape.num_layers, "hidden_channels": shape.hidden_channels, **plain}
    config = parse(Config, {"dataset": {"features": FEATURES}, "model": model})
    torch.manual_seed(seed)
    statistics = {"target_mean": torch.zeros(1), "target_std": torch.ones(1)}
    module = MoleculeModule(config, get_featurizer(FEATURES).num_features, Regression(("y",), ("",)), statistics, FEATURES)
    torch.save({"molgcn": describe(config, FEATURES, module.architecture), "state_dict": module.state_dict()}, path)


@cache
def _row(number: int, aromatic: bool, hybridization: int, hydrogens: int) -> list[float]:
    return get_featurizer(FEATURES).encode(AtomFields(number, num_hs=hydrogens, hybridization=hybridization, aromatic=aromatic)).tolist()


def _atom_row(atom: Any) -> list[float]:
    return _row(atom.GetAtomicNum(), atom.GetIsAromatic(), int(atom.GetHybridization()), atom.GetTotalNumHs(True))


class SmilesDataset(torch.utils.data.Dataset):
    """A data set that makes each `Data` on access, so that the DataLoader's workers featurise."""

    def __init__(self, smiles: Sequence[str]) -> None:
        self.smiles = list(smiles)

    def __len__(self) -> int:
        return len(self.smiles)

    def __getitem__(self, index: int) -> Any:
        """Return one molecule, read atom by atom and bond by bond as in PyG's `from_smiles`; each distinct feature row is made once."""
        from rdkit import Chem
        from torch_geometric.data import Data

        mol = Chem.AddHs(Chem.MolFromSmiles(self.smiles[index]))
        rows = [_atom_row(atom) for atom in mol.GetAtoms()]
        bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        edges = bonds + [(j, i) for i, j in bonds]
        return Data(x=torch.tensor(rows), edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous())


def pyg_script(checkpoints: Sequence[Path], source: Path, output: Path, workers: int) -> None:
    """Predict a file with PyG's DataLoader, worker processes and layers.

    Args:
        checkpoints: the models, whose predictions are averaged.
        source: a CSV file with a column `smiles`.
        output: the CSV file to write.
        workers: the number of worker processes.
    """
    from torch_geometric.loader import DataLoader

    modules = [load_module(checkpoint, BackendConfig(name="pyg")) for checkpoint in checkpoints]
    with open(source, newline="") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    with open(output, "w", newline="") as file, torch.no_grad():
        writer = csv.writer(file)
        writer.writerow(["smiles", "y predicted", "y predicted std"][: 2 if len(modules) == 1 else 3])
        start = 0
        for batch in DataLoader(SmilesDataset(smiles), batch_size=BATCH, num_workers=workers):
            values = torch.stack([module(batch)[:, 0] for module in modules])
            columns = [values.mean(dim=0), *([values.std(dim=0)] if len(modules) > 1 else [])]
            writer.writerows(zip(smiles[start : start + batch.num_graphs], *(column.tolist() for column in columns), strict=True))
            start += batch.num_graphs


def stages(smiles: Sequence[str], checkpoints: Sequence[Path]) -> tuple[float, float, float, float, float]:
    """Return the microseconds per molecule of each stage, for the first molecules of a file.

    The stages are RDKit's MolFromSmiles, our parsing, featurising with packing, our model and PyG's. They are timed in turn on one chunk
    of molecules after another, so that a change of the machine's speed affects all alike.
    """
    from rdkit import Chem, rdBase

    read = smiles_reader("counted")
    fused = Ensemble.load(checkpoints, BackendConfig(name="fused"))
    pyg = [load_module(checkpoint, BackendConfig(name="pyg")) for checkpoint in checkpoints]

    def measured(chunk: Sequence[str]) -> list[float]:
        molecules = prepare(chunk, features=FEATURES, kind="smiles", bonds=False).molecules
        assert molecules is not None
        batch = molecules.batch(slice(None)).to_pyg()
        times = [
            _seconds(lambda: _each(Chem.MolFromSmiles, chunk)),
            _seconds(lambda: _each(read, chunk)),
            _seconds(lambda: prepare(chunk, features=FEATURES, kind="smiles", bonds=False)),
            _seconds(lambda: fused.predict(molecules)),
            _seconds(lambda: [module(batch) for module in pyg]),
        ]
        return [seconds * 1e6 / len(chunk) for seconds in times]

    with rdBase.BlockLogs(), torch.no_grad():
        measured(smiles[:BATCH])  # warms up
        times = [measured(smiles[start : start + BATCH]) for start in range(0, min(len(smiles), 4 * BATCH), BATCH)]
    rdkit, parse, prepare_all, model, pyg_model = torch.tensor(times).mean(dim=0).tolist()
    return rdkit, parse, prepare_all - parse, model, pyg_model


def _each(function: Callable[[str], object], items: Sequence[str]) -> None:
    for item in items:
        function(item)


def largest_difference(ours: Path, theirs: Path) -> float:
    """Return the largest difference between the predictions of two tables, relative to their largest value."""
    columns = []
    for path in (ours, theirs):
        with open(path, newline="") as file:
            columns.append(torch.tensor([float(row[1]) for row in list(csv.reader(file))[1:]]))
    return float((columns[0] - columns[1]).abs().max() / columns[1].abs().max())


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
