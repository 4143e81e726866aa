"""Which tiles a batch is planned in, on a GPU that only the plan knows of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import assert_tiles

from molgcn.config import LoaderConfig, ModelConfig
from molgcn.data import datamodule, tile_choice
from molgcn.data.config import DatasetConfig
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.tile_choice import tile_nodes_for
from molgcn.data.tiles import fill_tiles
from molgcn.ops.launch import Gpu

PLAIN = ModelConfig(hidden_channels=32, norm=None, residual=False)
SIZES = np.random.default_rng(0).integers(13, 22, 4096)  # 8.4 tiles of 64 places a multiprocessor, 11.6 of 48
ALL = np.arange(len(SIZES))
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def h100(monkeypatch):
    monkeypatch.setattr(tile_choice, "gpu", lambda device: Gpu(132, 227 * 1024))


def test_smaller_tiles_where_the_busiest_scheduler_is_done_first():
    per_multiprocessor = [-(-(len(fill_tiles(SIZES, size)[1]) - 1) // 132) for size in (64, 48)]
    assert per_multiprocessor == [9, 12]
    assert tile_nodes_for(SIZES, ALL, PLAIN, CUDA) == 48


def test_smaller_tiles_where_there_is_at_most_one_a_multiprocessor():
    assert tile_nodes_for(SIZES, ALL[:300], PLAIN, CUDA) == 48
    assert tile_nodes_for(SIZES, ALL[:400], PLAIN, CUDA) == 64


@pytest.mark.parametrize(
    ("sizes", "batch", "model", "device"),
    [
        (SIZES, ALL, PLAIN, torch.device("cpu")),
        (SIZES, ALL, replace(PLAIN, hidden_channels=64), CUDA),
        (SIZES, ALL, replace(PLAIN, norm="layer"), CUDA),
        (SIZES, ALL, replace(PLAIN, residual=True), CUDA),
        (np.full(4096, 16), ALL, PLAIN, CUDA),  # eight tiles of 64 places, two a scheduler
        (SIZES, ALL[:1024], PLAIN, CUDA),  # few tiles, each with several warps
        (np.append(SIZES, 49), ALL, PLAIN, CUDA),  # another batch has a molecule that a smaller tile does not hold
    ],
)
def test_tiles_of_64_places_otherwise(sizes, batch, model, device):
    assert tile_nodes_for(sizes, batch, model, device) == 64


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tiles_of_128_places_where_any_batch_has_a_large_molecule(device):
    assert tile_nodes_for(np.append(SIZES, 65), ALL, PLAIN, torch.device(device)) == 128


@pytest.mark.parametrize("loader", ["packed", "pyg"])
@pytest.mark.parametrize("backend", ["fused", "pyg"])
def test_every_loader_and_backend_gets_the_same_tiles(monkeypatch, backend, loader):
    monkeypatch.setattr(datamodule, "tile_nodes_for", lambda sizes, batch, model, device: 48 if model is PLAIN else 64)
    data = MoleculeDataModule(DatasetConfig(name="builtin", batch_size=64), LoaderConfig(name=loader), backend, 0, PLAIN)
    for batch in (next(iter(data.train_dataloader())), next(iter(data.val_dataloader()))):
        assert batch.tile_nodes == 48
        assert_tiles(batch)
