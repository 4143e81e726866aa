import numpy as np
import pytest
from graphs import random_data

from molgcn.data import PackedMolecules
from molgcn.data.layout import BatchLayout, lay_out
from molgcn.errors import UserError


@pytest.fixture
def molecules():
    rng = np.random.default_rng(1)
    return PackedMolecules.from_pyg([random_data(rng, 9, num_edge_features=2) for _ in range(20)])


def test_batches_have_bonds_where_the_layout_asks_for_them(molecules):
    assert lay_out(molecules, BatchLayout(bonds=True)) is molecules
    bare = lay_out(molecules, BatchLayout())
    assert bare.edge_attr is None and bare.batch([0]).edge_attr is None and molecules.edge_attr is not None
    assert lay_out(molecules, BatchLayout()) is bare and lay_out(bare, BatchLayout()) is bare


def test_merged_leaves_have_no_bonds(molecules):
    merged = lay_out(molecules, BatchLayout(merge_leaves=True))
    assert merged.leaves_merged and merged.edge_attr is None
    with pytest.raises(ValueError, match="exclude each other"):
        BatchLayout(merge_leaves=True, bonds=True)


def test_bonds_that_are_not_there(molecules):
    with pytest.raises(UserError, match=r"model\.bonds=true takes features of bonds, but the set has none"):
        lay_out(lay_out(molecules, BatchLayout()), BatchLayout(bonds=True))


def test_batches_have_the_encodings_that_the_layout_asks_for(molecules):
    layout = BatchLayout(rwse=4, bond_rw=3)
    encoded = lay_out(molecules, layout)
    assert lay_out(molecules, layout) is encoded and encoded.edge_attr is None
    batch = encoded.batch(slice(None))
    assert batch.rwse.shape == (batch.num_nodes, 4) and batch.bond_rw.shape == (batch.num_edges, 3)
    assert lay_out(encoded, BatchLayout()).rwse is None
    assert lay_out(molecules, BatchLayout(bonds=True, rwse=4)).edge_attr is molecules.edge_attr
    with pytest.raises(ValueError, match="exclude each other"):
        BatchLayout(merge_leaves=True, rwse=4)
