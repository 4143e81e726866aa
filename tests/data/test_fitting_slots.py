"""Batches of any size keep what they hold when they are put into slots, whatever was in the slot before."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from graphs import molecule_lists, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.data.encodings import batch_encodings
from molgcn.data.fitting_slots import FittingSlots, Sizes
from molgcn.data.loader import PackedLoader

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
INPUTS = ("edge_attr", "rwse", "bond_rw", "descriptors")


def slots_of(device: str = "cpu", **options: Any) -> FittingSlots:
    index = torch.device(device, 0) if device == "cuda" else torch.device(device)
    return FittingSlots(index, **{"inputs": INPUTS, "walks": (3, 2), **options})


def assert_holds(placed: Any, batch: GraphBatch) -> None:
    """Assert that a slot's batch has the values of another one, and that what follows them in the slot is padding."""
    for name in ("x", "ptr", "rowptr", "col", "targets", "edge_attr", "descriptors"):
        mine, theirs = getattr(placed, name), getattr(batch, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            torch.testing.assert_close(mine.cpu(), theirs.cpu(), rtol=0, atol=0, equal_nan=True, check_dtype=False)
    for mine, theirs in zip((placed.rwse, placed.bond_rw), batch_encodings(batch, 3, 2), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs.cpu(), rtol=1e-6, atol=1e-7, check_dtype=False)
    slot, tile_ptr = placed.slot, placed.planned_tiles()
    assert slot.counts.tolist() == [batch.num_graphs, batch.num_nodes, batch.num_edges, len(tile_ptr) - 1]
    for name, count, value in (
        ("ptr", batch.num_graphs + 1, batch.num_nodes),
        ("rowptr", batch.num_nodes + 1, batch.num_edges),
        ("tile_ptr", len(tile_ptr), batch.num_graphs),
    ):
        assert (getattr(slot, name)[count:] == value).all(), name
    assert slot.targets[batch.num_graphs :].isnan().all()
    assert slot.x.isfinite().all()
    sizes = np.diff(batch.ptr.cpu().numpy())
    for first, end in zip(tile_ptr[:-1].tolist(), tile_ptr[1:].tolist(), strict=True):
        assert sizes[first:end].sum() <= placed.tile_nodes or end == first + 1


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=25)
@given(
    molecules=molecule_lists(max_size=8),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    kind=st.sampled_from(["pyg", "cpu", "device"]),
)
def test_batches_of_any_size_come_through(device, molecules, sizes, kind):
    slots, packed = slots_of(device), PackedMolecules.from_pyg(molecules)
    for size in sizes:
        chosen = [number % len(molecules) for number in range(size)]
        batch = packed.batch(chosen)
        if kind == "pyg":
            given_batch: Any = Batch.from_data_list([molecules[number] for number in chosen])
            batch = GraphBatch.from_pyg(given_batch)
        else:
            given_batch = batch.to(device) if kind == "device" else batch
        assert_holds(slots(given_batch), batch)


@pytest.mark.parametrize("device", DEVICES)
def test_a_loaders_batch_on_the_device_is_taken_as_it_is(device):
    packed = PackedMolecules.from_pyg([random_data(np.random.default_rng(seed), 5) for seed in range(8)])
    here = slots_of(device, inputs=(), walks=(0, 0))
    for batch in PackedLoader(packed, 4, device=device):
        assert here(batch) is batch
    assert here.made == 0
    batch = next(iter(PackedLoader(packed, 4, device=device)))
    other = slots_of(device)  # a network that reads encodings, which this loader's slots do not have
    assert_holds(other(batch), batch)


def test_a_larger_batch_makes_a_larger_slot_and_says_so_once(caplog):
    rng = np.random.default_rng(0)
    slots = slots_of(inputs=(), walks=(0, 0))
    forms = []
    with caplog.at_level(logging.WARNING):
        for nodes in (10, 11, 10, 40, 41, 400, 10):
            batch = PackedMolecules.from_pyg([random_data(rng, nodes) for _ in range(3)]).batch([0, 1, 2])
            forms.append(slots(GraphBatch.from_pyg(batch.to_pyg())).padded)
    assert forms[0] is forms[1] is forms[2] and forms[3] is forms[4]
    assert len({id(form) for form in forms}) == slots.made
    assert caplog.text.count("is larger than any before") == 1


def test_known_sizes_are_made_room_for_at_once():
    rng = np.random.default_rng(0)
    packed = PackedMolecules.from_pyg([random_data(rng, nodes) for nodes in (3, 30, 60, 5)])
    batches = [packed.batch([0]), packed.batch([1, 2]), packed.batch([3, 0, 3])]
    sizes = Sizes()
    for batch in batches:
        sizes = sizes.largest(Sizes.of(batch))
    slots = slots_of(inputs=(), walks=(0, 0), expected=sizes)
    placed = [slots(batch) for batch in batches]
    assert slots.made == 1
    assert placed[0].slot.capacity.nodes == sizes.nodes and placed[0].slot.capacity.graphs == 3


def test_targets_may_be_numbers_of_classes():
    item = random_data(np.random.default_rng(0), 5)
    item.y = torch.tensor([[2, 1]])
    slots = slots_of(inputs=(), walks=(0, 0))
    for copies in (2, 1):
        placed = slots(Batch.from_data_list([item] * copies))
        assert placed.targets.dtype == torch.int64 and placed.targets.tolist() == [[2, 1]] * copies
        assert placed.slot.padded_to(copies).targets.tolist() == [[2, 1]] * copies


@pytest.mark.gpu
def test_uploads_do_not_overtake_each_other():
    """A batch is copied while earlier work on the slot still runs, and its page-locked memory is not refilled before it has left."""
    rng = np.random.default_rng(0)
    batches = [PackedMolecules.from_pyg([random_data(rng, 50, levels=0) for _ in range(20)]).batch(slice(None)) for _ in range(12)]
    slots, sums = slots_of("cuda", inputs=(), walks=(0, 0)), []
    work = torch.randn(3000, 3000, device="cuda")
    for batch in batches:
        placed = slots(batch)
        for _ in range(3):
            work = work @ work / 3000
        sums.append(placed.x.double().sum())
    torch.testing.assert_close(torch.stack(sums).cpu(), torch.stack([batch.x.double().sum() for batch in batches]))
