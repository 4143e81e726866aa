"""Which tiles a batch is planned in, on a GPU that only the plan knows of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fold_cases import random_trees
from graphs import assert_tiles

from molgcn.config import LoaderConfig, ModelConfig
from molgcn.cuda_runtime.launch import Gpu
from molgcn.data import PackedMolecules, datamodule, tile_choice
from molgcn.data.config import DatasetConfig
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.fold import fold
from molgcn.data.tile_choice import rows_for, tile_nodes_for
from molgcn.data.tiles import fill_tiles

PLAIN = ModelConfig(hidden_channels=32, norm=None, residual=False)
SIZES = np.random.default_rng(0).integers(13, 22, 4096)  # 8.4 tiles of 64 places a multiprocessor, 11.6 of 48, 5.5 of 96
LARGER = np.random.default_rng(0).integers(14, 23, 4096)
ALL = np.arange(len(SIZES))
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def h100(monkeypatch):
    monkeypatch.setattr(tile_choice, "gpu", lambda device: Gpu(132, 227 * 1024))


def per_multiprocessor(sizes):
    return [-(-(len(fill_tiles(sizes, size)[1]) - 1) // 132) for size in (48, 64, 96)]


def test_smaller_tiles_where_the_busiest_scheduler_is_done_first():
    assert per_multiprocessor(SIZES) == [12, 9, 6]
    assert tile_nodes_for(SIZES, ALL, PLAIN, CUDA) == 48


def test_larger_ones_where_they_are_done_before_both():
    """As of QM9, 18 atoms a molecule: six tiles of two warps are three warps a scheduler, nine of 64 places up to three larger ones."""
    assert per_multiprocessor(LARGER) == [13, 9, 6]
    assert tile_nodes_for(LARGER, ALL, PLAIN, CUDA) == 96


def test_smaller_tiles_where_there_is_at_most_one_a_multiprocessor():
    assert tile_nodes_for(SIZES, ALL[:300], PLAIN, CUDA) == 48
    assert tile_nodes_for(SIZES, ALL[:400], PLAIN, CUDA) == 64


@pytest.mark.parametrize(
    ("sizes", "batch", "model", "device"),
    [
        (LARGER, ALL, PLAIN, torch.device("cpu")),
        (LARGER, ALL, replace(PLAIN, hidden_channels=64), CUDA),
        (LARGER, ALL, replace(PLAIN, norm="layer"), CUDA),
        (LARGER, ALL, replace(PLAIN, residual=True), CUDA),
        (np.full(4096, 16), ALL, PLAIN, CUDA),  # eight tiles of 64 places, two a scheduler
        (SIZES, ALL[:1024], PLAIN, CUDA),  # few tiles, each with several warps
        (np.append(np.full(4096, 16), 49), ALL, PLAIN, CUDA),  # another batch has a molecule that a smaller tile does not hold
    ],
)
def test_tiles_of_64_places_otherwise(sizes, batch, model, device):
    assert tile_nodes_for(sizes, batch, model, device) == 64


@pytest.mark.parametrize(
    ("largest", "count", "model", "device", "places"),
    [
        (65, 4096, PLAIN, CUDA, 96),
        (96, 4096, PLAIN, CUDA, 96),
        (96, 500, PLAIN, CUDA, 128),  # at most one a multiprocessor: more warps for each
        (97, 4096, PLAIN, CUDA, 128),
        (96, 4096, replace(PLAIN, hidden_channels=33), CUDA, 128),
        (65, 4096, PLAIN, torch.device("cpu"), 128),
    ],
)
def test_a_large_molecule_of_any_batch_decides(largest, count, model, device, places):
    assert tile_nodes_for(np.append(SIZES, largest), ALL[:count], model, device) == places


def test_three_warps_a_scheduler_cost_less_in_lower_precisions():
    """Tiles of 64 places, two a scheduler, of 48, up to three, or of 96, three warps."""
    sizes = np.random.default_rng(0).integers(12, 17, 4096)
    assert tile_nodes_for(sizes, ALL, PLAIN, CUDA) == tile_nodes_for(sizes, ALL, PLAIN, CUDA, "float32") == 64
    assert tile_nodes_for(sizes, ALL, PLAIN, CUDA, "tf32") == tile_nodes_for(sizes, ALL, PLAIN, CUDA, "bf16") == 48


ALIKE = random_trees([18] * 4096, 3)  # half of their leaves have a twin


@pytest.mark.parametrize(
    ("options", "strategy", "device", "count", "folds"),
    [
        ({}, "auto", CUDA, 4096, True),
        ({"norm": "layer", "residual": True, "hidden_channels": 96, "pool": "max"}, "auto", CUDA, 4096, True),
        ({"hidden_channels": 128}, "stack", CUDA, 4096, True),
        ({"hidden_channels": 128}, "auto", CUDA, 4096, False),  # `vertex`
        ({"norm": "batch"}, "auto", CUDA, 4096, False),
        ({}, "vertex", CUDA, 4096, False),
        ({"dropout": 0.1}, "auto", CUDA, 4096, False),
        ({}, "auto", torch.device("cpu"), 4096, False),
        ({}, "auto", CUDA, 469, False),  # 132 tiles: one each
        ({}, "auto", CUDA, 470, True),
    ],
)
def test_sets_are_folded_where_the_kernels_take_it_and_have_several_tiles_each(options, strategy, device, count, folds):
    rows = rows_for(ALIKE, ALL[:count], replace(PLAIN, **options), strategy, device)
    assert rows is (fold(ALIKE) if folds else ALIKE)


def test_a_set_with_few_atoms_alike_stays():
    few = PackedMolecules.concat([ALIKE[:400], random_trees([18] * 3600, 3, kinds=5000)])
    assert 0.95 < fold(few).num_nodes / few.num_nodes < 1
    assert rows_for(few, np.arange(len(few)), PLAIN, "auto", CUDA) is few


def test_the_loader_of_the_fused_backend_folds(monkeypatch):
    def folded_for_stack(molecules, batch, model, strategy, device):
        return fold(molecules) if strategy == "stack" else molecules

    monkeypatch.setattr(datamodule, "rows_for", folded_for_stack)
    config = DatasetConfig(name="builtin", batch_size=64)
    for backend, loader, folds in (("fused", "auto", True), ("fused", "pyg", False), ("pyg", "packed", False)):
        data = MoleculeDataModule(config, LoaderConfig(name=loader), backend, 0, PLAIN, "stack")
        train, val = next(iter(data.train_dataloader())), next(iter(data.val_dataloader()))
        assert train.folded == val.folded == folds
        assert (train.num_nodes < data.part("train").num_nodes_per_graph[train.indices].sum()) == folds
        assert_tiles(train)


@pytest.mark.parametrize("loader", ["packed", "pyg"])
@pytest.mark.parametrize("backend", ["fused", "pyg"])
def test_every_loader_and_backend_gets_the_same_tiles(monkeypatch, backend, loader):
    monkeypatch.setattr(datamodule, "tile_nodes_for", lambda sizes, batch, model, *others: 48 if model is PLAIN else 64)
    data = MoleculeDataModule(DatasetConfig(name="builtin", batch_size=64), LoaderConfig(name=loader), backend, 0, PLAIN)
    for batch in (next(iter(data.train_dataloader())), next(iter(data.val_dataloader()))):
        assert batch.tile_nodes == 48
        assert_tiles(batch)
