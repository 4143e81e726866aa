"""A model's batches get the right layout, on a GPU that exists in the plan only."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from leaf_cases import random_trees

from molgcn.config.run import ModelConfig
from molgcn.cuda_runtime.launch import Gpu
from molgcn.data import PackedMolecules
from molgcn.data.layout import BatchLayout
from molgcn.data.merge_leaves import merge_leaves
from molgcn.data.tiles import fill_tiles
from molgcn.nn import batch_layout as module
from molgcn.nn.batch_layout import batch_layout, merging_pays, tile_nodes_for

PLAIN = ModelConfig(hidden_channels=32, norm=None, residual=False)
SIZES = np.random.default_rng(0).integers(13, 22, 4096)  # 8.4 tiles of 64 rows per multiprocessor, 11.6 of 48, 5.5 of 96
LARGER = np.random.default_rng(0).integers(14, 23, 4096)
ALL = np.arange(len(SIZES))
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def h100(monkeypatch):
    monkeypatch.setattr(module, "gpu", lambda device: Gpu(132, 227 * 1024))


def per_multiprocessor(sizes):
    return [-(-(len(fill_tiles(sizes, size)[1]) - 1) // 132) for size in (48, 64, 96)]


def test_smaller_tiles_where_the_busiest_scheduler_is_done_first():
    assert per_multiprocessor(SIZES) == [12, 9, 6]
    assert tile_nodes_for(SIZES, ALL, PLAIN, CUDA) == 48


def test_larger_ones_where_they_are_done_before_both():
    """QM9's molecules of 18 atoms fill nine tiles of 64 or six of 96 per multiprocessor; the latter are three warps per scheduler."""
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
        (np.full(4096, 16), ALL, PLAIN, CUDA),  # eight tiles of 64 rows, two a scheduler
        (SIZES, ALL[:1024], PLAIN, CUDA),  # few tiles, each with several warps
        (np.append(np.full(4096, 16), 49), ALL, PLAIN, CUDA),  # another batch has a molecule that a smaller tile does not hold
    ],
)
def test_tiles_of_64_places_otherwise(sizes, batch, model, device):
    assert tile_nodes_for(sizes, batch, model, device) == 64


@pytest.mark.parametrize(
    ("sizes", "model", "places"),
    [
        (SIZES, ModelConfig(hidden_channels=193, norm=None), 48),
        (SIZES, ModelConfig(hidden_channels=256, norm="layer"), 48),
        (SIZES, ModelConfig(hidden_channels=192, norm=None), 64),  # two tiles of 64 fit too
        (SIZES, ModelConfig(hidden_channels=257, norm=None), 64),  # the family's steps
        (SIZES, ModelConfig(hidden_channels=256, norm="batch"), 64),  # the family's steps in training
        (SIZES, ModelConfig(name="gin", hidden_channels=256, norm=None), 64),  # another operator
        (np.full(4096, 30), ModelConfig(hidden_channels=256, norm=None), 64),  # twice as many tiles of 48
        (np.append(SIZES, 49), ModelConfig(hidden_channels=256, norm=None), 64),  # a molecule that a smaller tile does not hold
    ],
)
def test_smaller_tiles_where_only_they_fit_twice(sizes, model, places):
    assert tile_nodes_for(sizes, ALL, model, CUDA) == places


@pytest.mark.parametrize(("hidden", "limit", "places"), [(176, 163, 48), (256, 163, 64), (100, 99, 64)])
def test_smaller_tiles_on_gpus_with_less_shared_memory(monkeypatch, hidden, limit, places):
    """One of 64 must fit too: without it the family's steps would run."""
    monkeypatch.setattr(module, "gpu", lambda device: Gpu(132, limit * 1024))
    assert tile_nodes_for(SIZES, ALL, ModelConfig(hidden_channels=hidden, norm=None), CUDA) == places


@pytest.mark.parametrize(
    ("largest", "count", "model", "device", "places"),
    [
        (65, 4096, PLAIN, CUDA, 96),
        (96, 4096, PLAIN, CUDA, 96),
        (96, 500, PLAIN, CUDA, 128),  # at most one per multiprocessor: more warps for each
        (97, 4096, PLAIN, CUDA, 128),
        (96, 4096, replace(PLAIN, hidden_channels=33), CUDA, 128),
        (65, 4096, PLAIN, torch.device("cpu"), 128),
    ],
)
def test_a_large_molecule_of_any_batch_decides(largest, count, model, device, places):
    assert tile_nodes_for(np.append(SIZES, largest), ALL[:count], model, device) == places


def test_three_warps_a_scheduler_cost_less_in_lower_precisions():
    """A scheduler has two warps with tiles of 64, up to three with tiles of 48, and three with tiles of 96."""
    sizes = np.random.default_rng(0).integers(12, 17, 4096)
    assert tile_nodes_for(sizes, ALL, PLAIN, CUDA) == tile_nodes_for(sizes, ALL, PLAIN, CUDA, "float32") == 64
    assert tile_nodes_for(sizes, ALL, PLAIN, CUDA, "tf32") == tile_nodes_for(sizes, ALL, PLAIN, CUDA, "bf16") == 48


ALIKE = random_trees([18] * 4096, 3)  # half of their leaves have an equal one


@pytest.mark.parametrize(
    ("options", "strategy", "device", "count", "pays"),
    [
        ({}, "auto", CUDA, 4096, True),
        ({"norm": "layer", "residual": True, "hidden_channels": 96, "pool": "max"}, "auto", CUDA, 4096, True),
        ({"hidden_channels": 128}, "tile", CUDA, 4096, True),
        ({"hidden_channels": 128}, "auto", CUDA, 4096, False),  # `layer`
        ({"norm": "batch"}, "auto", CUDA, 4096, False),
        ({}, "layer", CUDA, 4096, False),
        ({"dropout": 0.1}, "auto", CUDA, 4096, False),
        ({}, "auto", torch.device("cpu"), 4096, False),
        ({}, "auto", CUDA, 469, False),  # 132 tiles: one each
        ({}, "auto", CUDA, 470, True),
    ],
)
def test_leaves_are_merged_where_the_kernels_take_it_and_have_several_tiles_each(options, strategy, device, count, pays):
    assert merging_pays(ALIKE, ALL[:count], replace(PLAIN, **options), strategy, device) == pays


def test_a_set_with_few_atoms_alike_stays():
    few = PackedMolecules.concat([ALIKE[:400], random_trees([18] * 3600, 3, kinds=5000)])
    assert 0.95 < merge_leaves(few).num_nodes / few.num_nodes < 1
    assert not merging_pays(few, np.arange(len(few)), PLAIN, "auto", CUDA)


@pytest.mark.parametrize(
    ("backend", "precision", "can_merge", "merges"),
    [
        ("fused", "32-true", True, True),
        ("fused", "bf16-mixed", True, True),
        ("fused", "64-true", True, False),
        ("fused", "32-true", False, False),
        ("pyg", "32-true", True, False),
    ],
)
def test_tiles_are_chosen_for_the_rows_that_are_left(backend, precision, can_merge, merges):
    rows, products = merge_leaves(ALIKE) if merges else ALIKE, "bf16" if precision == "bf16-mixed" else "float32"
    layout = batch_layout(PLAIN, backend, "auto", ALIKE, ALL, CUDA, precision, can_merge=can_merge)
    assert layout == BatchLayout(tile_nodes_for(rows.num_nodes_per_graph, ALL, PLAIN, CUDA, products), merges)


@pytest.mark.parametrize("norm", ["batch", "layer", None])
def test_batch_norm_wants_no_batch_of_one_molecule(norm):
    layout = batch_layout(replace(PLAIN, norm=norm), "fused", "auto", ALIKE, ALL, torch.device("cpu"))
    assert layout == BatchLayout(64, join_single=norm == "batch")
