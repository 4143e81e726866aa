import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import random_data
from test_loader import poison

from molgcn.data import PackedMolecules
from molgcn.data.feed_cpu import CPUFeed
from molgcn.data.resident import SOURCE, THREADS, Launch, PlanBuffer, ResidentSet, resident_bytes, row_ends
from molgcn.data.sampler import MoleculeSampler
from molgcn.data.slots import Capacity, Slot
from molgcn.data.tiles import HAS_EXTENSION
from molgcn.errors import UserError
from molgcn.ops import nvrtc
from molgcn.resources import resource

KINDS = {
    "codes of one byte": {"num_features": 4, "levels": 2, "largest": 30},
    "codes of two bytes": {"num_features": 2, "levels": 25, "largest": 30, "count": 120},
    "feature rows, large molecules, no targets": {"num_features": 5, "levels": 0, "largest": 300, "num_targets": 0},
}


def random_set(num_features, levels, largest, count=40, num_targets=2):
    rng = np.random.default_rng(3)
    sizes = [*rng.integers(1, largest, count - 1), largest]
    return PackedMolecules.from_pyg([random_data(rng, int(n), num_features, num_targets, levels) for n in sizes])


@pytest.fixture(params=KINDS, ids=str)
def molecules(request):
    return random_set(**KINDS[request.param])


def test_row_ends_are_the_running_sums_of_each_molecule(molecules):
    ends = row_ends(molecules)
    for i in range(len(molecules)):
        nodes = slice(*molecules.node_ptr[i : i + 2])
        assert np.array_equal(ends[nodes], np.cumsum(molecules.degree[nodes]))
    assert sum(tensor.nbytes for tensor in ResidentSet(molecules, "cpu").tensors()) <= resident_bytes(molecules)


def test_the_kinds_differ_in_what_the_kernel_is_specialised_by():
    macros = [ResidentSet(random_set(**kind), "cpu").macros for kind in KINDS.values()]
    assert [tuple(sorted(m.items())) for m in macros] == [
        (("CODE_BYTES", 1), ("END_BYTES", 1), ("FEATURES", 4), ("NEIGHBOR_BYTES", 1)),
        (("CODE_BYTES", 2), ("END_BYTES", 1), ("FEATURES", 2), ("NEIGHBOR_BYTES", 1)),
        (("CODE_BYTES", 0), ("END_BYTES", 2), ("FEATURES", 5), ("NEIGHBOR_BYTES", 2)),
    ]


@pytest.mark.skipif(not HAS_EXTENSION or shutil.which("c++") is None, reason="needs the C++ extension and a compiler")
def test_the_kernel_fills_slots_as_the_cpu_does(molecules, tmp_path):
    """Every place of every array, empty ones too; the slots are poisoned before each fill."""
    resident = ResidentSet(molecules, "cpu")
    library = tmp_path / "collate.so"
    macros = [f"-D{name}={value}" for name, value in resident.macros.items()]
    command = ["c++", "-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-I", str(resource("cuda")), *macros]
    subprocess.run([*command, str(Path(__file__).with_name("threads.h")), "-o", str(library)], check=True)
    run = ctypes.CDLL(str(library)).run
    sampler = MoleculeSampler(molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr), 7, seed=1)
    capacity = Capacity.of(molecules, 7)
    expected = CPUFeed(molecules, Slot.pair(molecules, capacity))
    slots = Slot.pair(molecules, capacity)
    buffer = PlanBuffer(sampler.plan(0))
    for epoch in range(2):
        plan = sampler.plan(epoch)
        buffer.copy_(plan)
        for number in range(len(plan)):
            poison((*slots, *expected.slots))
            next(expected.read(plan, number))
            slot = slots[number % 2]
            launch = Launch(resident, buffer, slot)
            run(ctypes.byref(launch.batch(plan.place(number))), launch.grid, THREADS)
            for name in Slot.names:
                one, other = getattr(slot, name), getattr(expected.slots[number % 2], name)
                assert torch.equal(one.nan_to_num(nan=-77), other.nan_to_num(nan=-77)), name


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_kernel_compiles(molecules, arch):
    try:
        nvrtc.nvrtc_version()
    except UserError as error:
        pytest.skip(str(error))
    assert nvrtc.compile_source(SOURCE, ResidentSet(molecules, "cpu").macros, arch).startswith(b"\x7fELF")


def test_a_staged_plan_is_the_plan(molecules):
    sampler = MoleculeSampler(molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr), 7)
    buffer = PlanBuffer(sampler.plan(0))
    for epoch in range(3):
        plan = sampler.plan(epoch)
        staged = buffer.copy_(plan).view(plan)
        for number in range(len(plan)):
            assert staged.place(number) == plan.place(number)
            for one, other in zip(staged.batch(number), plan.batch(number), strict=True):
                assert np.array_equal(one, other)
