"""Loaders gather the arrays that the packed set's list names."""

import numpy as np
import pytest
from graphs import random_data

from molgcn.data import PackedMolecules
from molgcn.data.packed_arrays import NAMES, batch_arrays
from molgcn.data.resident import DeviceMolecules, Piece
from molgcn.data.slots import Capacity, Slot

KINDS = {  # levels of the features, features of bonds, descriptors: what batches hold, as name, columns and bytes of a code
    "codes": (2, 3, 0, [("x", 4, 1), ("edge_code", 0, 1)]),
    "rows": (0, 3, 0, [("x", 4, 0), ("edge_attr", 3, 0)]),
    "no bonds": (2, 0, 0, [("x", 4, 1)]),
    "descriptors": (2, 0, 5, [("x", 4, 1), ("descriptors", 5, 0)]),
}


@pytest.fixture(params=KINDS, ids=str)
def kind(request):
    levels, num_edge_features, num_descriptors, expected = KINDS[request.param]
    rng = np.random.default_rng(1)
    data = [random_data(rng, 20, 4, levels=levels, num_edge_features=num_edge_features, num_descriptors=num_descriptors) for _ in range(30)]
    return PackedMolecules.from_pyg(data), expected


def test_batches_hold_what_the_set_has(kind):
    molecules, expected = kind
    arrays = batch_arrays(molecules)
    assert [(array.name, array.columns, array.code_bytes) for array in arrays] == expected
    for array in arrays:
        assert array.name in NAMES[array.axis]
        taken = array.take(np.array([3, 1]))
        assert taken.dtype == array.batch_type and taken.shape == (2, *array.batch_shape)
    assert np.array_equal(arrays[0].take(slice(5, 9)), molecules.node_features(slice(5, 9)))


def test_slots_pieces_and_sets_on_a_device_follow(kind):
    molecules, expected = kind
    names, capacity = [name for name, *_ in expected], Capacity.of(molecules, 7)
    gathered = {name for names in NAMES.values() for name in names}
    slot = Slot.of(molecules, capacity)
    assert gathered.intersection(slot.arrays) == {*names}
    for arrays in (Piece(molecules, capacity).kernel_arrays(), DeviceMolecules(molecules, "cpu").arrays()):
        assert gathered.intersection(arrays) == {*names}
