"""Predicting a file of SMILES: this project's `predict`, and what a PyTorch Geometric user writes for the same."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from molgcn.config import Config, parse
from molgcn.data.atoms import get_featurizer
from molgcn.data.molecules import read_smiles
from molgcn.data.workers import available_cores
from molgcn.predict import PredictConfig, predict
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.prepare import prepare
from molgcn.training.checkpoint_format import describe
from molgcn.training.regressor import MoleculeRegressor
from molgcn.training.restore import load_regressor

BATCH = 1024
FEATURES = "qm9"


@dataclass(frozen=True)
class Shape:
    """A network: layers and width."""

    num_layers: int
    hidden_channels: int


@dataclass(frozen=True)
class ScreeningRow:
    """Seconds for a file of M molecules, and microseconds a molecule of each stage by itself.

    `parse` and `featurise` (with packing) are one core's, `model` and `pyg_model` all cores'.
    """

    shape: Shape
    molecules: int
    ours: float
    pyg: float
    parse: float
    featurise: float
    model: float
    pyg_model: float
    difference: float


def screen(smiles: Sequence[str], shape: Shape, folder: Path) -> ScreeningRow:
    """Measures one network; both sides read and write a CSV file and use all cores.

    Args:
        smiles: molecules that all parse, without header.
        shape: the network, without norm; its weights are drawn.
        folder: for the files.
    """
    source, checkpoint = folder / "input.csv", folder / "model.ckpt"
    with open(source, "w", newline="") as file:
        csv.writer(file).writerows([["smiles"], *([text] for text in smiles)])
    save_untrained(shape, checkpoint)
    values = {"ckpt": str(checkpoint), "input": str(source), "device": "cpu", "batch_size": BATCH, "num_workers": available_cores()}
    ours, pyg = folder / "ours.csv", folder / "pyg.csv"
    settings = parse(PredictConfig, {**values, "output": str(ours)})
    times = _seconds(lambda: predict(settings)), _seconds(lambda: pyg_script(checkpoint, source, pyg, available_cores()))
    return ScreeningRow(shape, len(smiles), *times, *stages(smiles, checkpoint), largest_difference(ours, pyg))


def save_untrained(shape: Shape, path: Path) -> None:
    """A checkpoint of a network as it was drawn."""
    model = {"num_layers": shape.num_layers, "hidden_channels": shape.hidden_channels, "norm": None, "residual": False, "init": "kaiming"}
    config = parse(Config, {"dataset": {"features": FEATURES}, "model": model})
    torch.manual_seed(0)
    module = MoleculeRegressor(config, get_featurizer(FEATURES).num_features, ("y",), ("",), torch.zeros(1), torch.ones(1), FEATURES)
    torch.save({"molgcn": describe(config, FEATURES, module.architecture), "state_dict": module.state_dict()}, path)


class SmilesDataset(torch.utils.data.Dataset):
    """`Data` objects made when they are asked for, so that the DataLoader's workers featurise."""

    def __init__(self, smiles: Sequence[str]) -> None:
        self.smiles = list(smiles)

    def __len__(self) -> int:
        return len(self.smiles)

    def __getitem__(self, index: int) -> Any:
        """One molecule, an atom and a bond at a time, as PyG's own `from_smiles` does."""
        from torch_geometric.data import Data

        featurizer = get_featurizer(FEATURES)
        mol = read_smiles(self.smiles[index], featurizer.hydrogens)
        rows = [featurizer.encode(featurizer.key(atom)).tolist() for atom in mol.GetAtoms()]
        bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        edges = bonds + [(j, i) for i, j in bonds]
        return Data(x=torch.tensor(rows), edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous())


def pyg_script(checkpoint: Path, source: Path, output: Path, workers: int) -> None:
    """The same task with PyG's DataLoader, worker processes and layers."""
    from torch_geometric.loader import DataLoader

    from molgcn.config import BackendConfig

    module = load_regressor(checkpoint, BackendConfig(name="pyg"))
    with open(source, newline="") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    with open(output, "w", newline="") as file, torch.no_grad():
        writer = csv.writer(file)
        writer.writerow(["smiles", "y predicted"])
        start = 0
        for batch in DataLoader(SmilesDataset(smiles), batch_size=BATCH, num_workers=workers):
            values = module(batch)[:, 0].tolist()
            writer.writerows(zip(smiles[start : start + len(values)], values, strict=True))
            start += len(values)


def stages(smiles: Sequence[str], checkpoint: Path) -> tuple[float, float, float, float]:
    """Microseconds a molecule to parse, to featurise and pack, for the fused model and for PyG's."""
    from molgcn.config import BackendConfig

    def parsed() -> None:
        for text in smiles:
            read_smiles(text, "folded")

    prepared: list[Any] = []
    parse_time = _seconds(parsed)
    prepare_time = _seconds(lambda: prepared.extend(prepare(chunk, features=FEATURES, kind="smiles") for chunk in _chunks(smiles)))
    sets = [one.molecules for one in prepared]
    fused = Ensemble.load([checkpoint], BackendConfig(name="fused"))
    batches = [one.batch(slice(None)).to_pyg() for one in sets]
    pyg = load_regressor(checkpoint, BackendConfig(name="pyg"))
    fused.predict(sets[0])
    with torch.no_grad():
        pyg(batches[0])
        fused_time = _seconds(lambda: [fused.predict(one) for one in sets])
        pyg_time = _seconds(lambda: [pyg(batch) for batch in batches])
    scale = 1e6 / len(smiles)
    return parse_time * scale, (prepare_time - parse_time) * scale, fused_time * scale, pyg_time * scale


def largest_difference(ours: Path, theirs: Path) -> float:
    """Of the last columns of two tables, relative to their largest value."""
    columns = []
    for path in (ours, theirs):
        with open(path, newline="") as file:
            columns.append(torch.tensor([float(row[-1]) for row in list(csv.reader(file))[1:]]))
    return float((columns[0] - columns[1]).abs().max() / columns[1].abs().max())


def _chunks(smiles: Sequence[str]) -> Iterator[Sequence[str]]:
    return (smiles[start : start + BATCH] for start in range(0, len(smiles), BATCH))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
