import ctypes
import gc
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import by_turns
from compiler import COMPILER, with_declared_headers
from compiling import compiles
from emulated_kernels import compiled
from graphs import random_data
from test_loader import poison

from molgcn.data import PackedMolecules
from molgcn.data.feed import CPUFeed
from molgcn.data.layout import with_encodings
from molgcn.data.resident import (
    SOURCE,
    THREADS,
    DeviceMolecules,
    Launch,
    Piece,
    PlanBuffer,
    is_resident,
    macros,
    resident_bytes,
    row_ends,
    tables,
)
from molgcn.data.sampler import MoleculeSampler
from molgcn.data.slots import Capacity, Slot
from molgcn.resources import resource

KINDS = {
    "codes of one byte": {"num_features": 4, "levels": 2, "largest": 30},
    "targets in float64": {"num_features": 4, "levels": 2, "largest": 20, "center": 1e8},
    "codes of two bytes": {"num_features": 2, "levels": 25, "largest": 30, "count": 120},
    "feature rows, large molecules, no targets": {"num_features": 5, "levels": 0, "largest": 300, "num_targets": 0},
    "bonds by codes": {"num_features": 4, "levels": 2, "largest": 30, "num_edge_features": 3},
    "bonds by rows": {"num_features": 4, "levels": 0, "largest": 30, "num_edge_features": 13},
    "descriptors": {"num_features": 4, "levels": 2, "largest": 30, "num_descriptors": 5},
    "components": {"num_features": 4, "levels": 2, "largest": 30, "components": 3},
    "encodings": {"num_features": 4, "levels": 2, "largest": 30, "rwse": 5, "bond_rw": 3},
    "targets of atoms and bonds": {"num_features": 4, "levels": 2, "largest": 30, "atom_targets": 2, "bond_targets": 1},
}


def random_set(
    num_features,
    levels,
    largest,
    count=40,
    num_targets=2,
    center=0.0,
    num_edge_features=0,
    num_descriptors=0,
    components=0,
    rwse=0,
    bond_rw=0,
    atom_targets=0,
    bond_targets=0,
):
    rng = np.random.default_rng(3)
    sizes = [*rng.integers(1, largest, count - 1), largest]
    data = [random_data(rng, int(n), num_features, num_targets, levels, num_edge_features, num_descriptors) for n in sizes]
    for item in data:
        item.y = item.y.double() + center
        if components:
            item.component = torch.tensor(rng.integers(0, components, len(item.x)))
    molecules = with_encodings(PackedMolecules.from_pyg(data), rwse, bond_rw)
    if not atom_targets:
        return molecules
    values = [rng.random(shape, np.float32) for shape in ((molecules.num_nodes, atom_targets), (molecules.num_edges, bond_targets))]
    return replace(molecules, atom_targets=values[0], bond_targets=values[1])


@pytest.fixture(params=KINDS, ids=str)
def molecules(request):
    return random_set(**KINDS[request.param])


def test_row_ends_are_the_running_sums_of_each_molecule(molecules):
    ends = row_ends(molecules)
    for i in range(len(molecules)):
        nodes = slice(*molecules.node_ptr[i : i + 2])
        assert np.array_equal(ends[nodes], np.cumsum(molecules.degree[nodes]))
    assert sum(tensor.nbytes for tensor in DeviceMolecules(molecules, "cpu").arrays().values()) <= resident_bytes(molecules)


def test_a_set_is_uploaded_once_and_goes_with_its_molecules():
    molecules, device = random_set(**KINDS["codes of one byte"]), torch.device("cpu")
    assert not is_resident(molecules, device)
    first = weakref.ref(DeviceMolecules.of(molecules, device))
    assert DeviceMolecules.of(molecules, device) is first() and is_resident(molecules, device)
    del molecules
    gc.collect()
    assert first() is None


def test_the_kinds_differ_in_what_the_kernel_is_specialised_by():
    common = {"END_BYTES": 1, "NEIGHBOR_BYTES": 1, "x_CODE_BYTES": 1, "x_COLUMNS": 4}
    found = [macros(DeviceMolecules(random_set(**kind), "cpu")) for kind in KINDS.values()]
    assert [{name: value for name, value in macros.items() if value} for macros in found] == [
        common,
        common,
        common | {"x_CODE_BYTES": 2, "x_COLUMNS": 2},
        {"END_BYTES": 2, "NEIGHBOR_BYTES": 2, "x_COLUMNS": 5},
        common | {"edge_code_CODE_BYTES": 1},
        {"END_BYTES": 1, "NEIGHBOR_BYTES": 1, "x_COLUMNS": 4, "edge_attr_COLUMNS": 13},
        common | {"descriptors_COLUMNS": 5},
        common | {"component_CODE_BYTES": 1},
        common | {"rwse_COLUMNS": 5, "bond_rw_COLUMNS": 3},
        common | {"atom_targets_COLUMNS": 2, "bond_targets_COLUMNS": 1},
    ]
    assert {*found[0]} == {*found[-1]}  # the others are 0, not missing


@pytest.fixture
def emulated(tmp_path):
    """Return the kernel compiled for the CPU, where its threads run one after another."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")

    def build(macros):
        folders = [Path(__file__).parent, resource("cuda"), with_declared_headers(tmp_path)]
        options = ["-shared", *(f"-D{name}={value}" for name, value in macros.items())]
        library = compiled("collate.so", '#include "threads.h"', folders, options, [f"-I{folder}" for folder in folders])
        run = ctypes.CDLL(str(library)).run
        return lambda launch, parameters: run(ctypes.byref(parameters), launch.grid, THREADS)

    return build


def batches_of_two_epochs(molecules, batch_size, capacity):
    """Yield plans, numbers, and the CPU's slot with the batch, poisoned before it was filled."""
    sampler = MoleculeSampler(molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr), batch_size, seed=1)
    feed = CPUFeed(molecules, Slot.pair(molecules, capacity))
    for epoch in range(2):
        plan = sampler.plan(epoch)
        for number in range(len(plan)):
            poison(feed.slots)
            next(feed.read(plan, number))
            yield plan, number, feed.slots[number % 2]


def assert_same(slot, expected):
    """Assert that slots are equal in every place of every array, also in empty ones."""
    for name in slot.arrays:
        assert torch.equal(getattr(slot, name).nan_to_num(nan=-77), getattr(expected, name).nan_to_num(nan=-77)), name


@pytest.mark.parametrize("room", [7, 600, 5000])
def test_the_kernel_fills_slots_from_the_set_as_the_cpu_does(molecules, emulated, room):
    """In larger slots fewer threads take a molecule."""
    capacity = replace(Capacity.of(molecules, 7), graphs=room)
    resident, slots, buffer = DeviceMolecules(molecules, "cpu"), Slot.pair(molecules, capacity), None
    run, cursor = emulated(macros(resident)), torch.tensor([-5, -5], dtype=torch.int32)
    for plan, number, expected in batches_of_two_epochs(molecules, 7, capacity):
        buffer = (buffer or PlanBuffer(plan)).copy_(plan)
        arrays = resident.arrays() | buffer.arrays() | {"cursor": cursor}
        launches = [Launch(arrays, slot, place, len(plan)) for place, slot in enumerate(slots)]
        for told in [number] if number == 0 else [-1, number]:  # by the cursor, which the previous batch moved, and by its number
            poison([slots[number % 2]])
            run(launches[number % 2], launches[number % 2].batch(told))
            assert_same(slots[number % 2], expected)
            assert cursor[1 - number % 2] == number + 1
    before = [tensor.clone() for tensor in slots[1 - number % 2].tensors()]
    run(launches[1 - number % 2], launches[1 - number % 2].batch(-1))  # beyond the plan
    for tensor, old in zip(slots[1 - number % 2].tensors(), before, strict=True):
        assert torch.equal(tensor.nan_to_num(), old.nan_to_num())


@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_kernel_fills_slots_from_pieces_as_the_cpu_does(molecules, emulated, num_threads):
    from molgcn._cpu import PieceCollator

    capacity = Capacity.of(molecules, 7)
    slots, pieces = Slot.pair(molecules, capacity), (Piece(molecules, capacity), Piece(molecules, capacity))
    collator = PieceCollator(molecules, *pieces, num_threads)
    first = pieces[0]
    run = emulated(macros(first))
    for plan, number, expected in batches_of_two_epochs(molecules, 7, capacity):
        slot, piece, place = slots[number % 2], pieces[number % 2], plan.spans[number]
        poison([slot])
        for one in pieces:
            one.buffer.fill_(0xEE)
        collator.start(plan, number, len(plan))
        assert collator.next() == number
        collator.stop()
        piece.buffer[piece.used_bytes(place) :] = 0xEE  # what is not copied to the GPU
        arrays = piece.kernel_arrays() | tables(piece.features, "cpu")
        launch = Launch(arrays, slot)
        run(launch, launch.piece(place))
        assert_same(slot, expected)


@pytest.mark.parametrize(
    ("arch", "kind", "staged"),
    by_turns((kind, number % 2 ^ staged) for staged in (0, 1) for number, kind in enumerate(KINDS) if kind != "targets in float64"),
)  # which the kernel does not handle
def test_the_kernel_compiles(arch, kind, staged):
    molecules = random_set(**KINDS[kind])
    assert compiles(SOURCE, macros(DeviceMolecules(molecules, "cpu")) | {"STAGED": staged}, arch)


def test_a_staged_plan_is_the_plan(molecules):
    sampler = MoleculeSampler(molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr), 7)
    buffer = PlanBuffer(sampler.plan(0))
    for epoch in range(3):
        plan = sampler.plan(epoch)
        staged = buffer.copy_(plan).view(plan)
        for number in range(len(plan)):
            assert staged.spans[number] == plan.spans[number]
            for one, other in zip(staged.batch(number), plan.batch(number), strict=True):
                assert np.array_equal(one, other)
