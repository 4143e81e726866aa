import numpy as np
import pytest
import torch
from graphs import assert_collated, assert_tiles, molecule_lists, random_data
from hypothesis import given
from torch_geometric.data import Batch, Data

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError

FIELDS = ("x", "ptr", "rowptr", "col", "targets", "indices", "edge_index", "batch", "tile_ptr")


@pytest.fixture
def packed():
    rng = np.random.default_rng(1)
    return PackedMolecules.from_pyg([random_data(rng, int(n)) for n in rng.integers(1, 30, 20)])


def assert_equal(one, other):
    for name in FIELDS:
        assert torch.equal(getattr(one, name).nan_to_num(), getattr(other, name).nan_to_num()), name
        assert getattr(one, name).dtype == getattr(other, name).dtype, name
    assert (one.edge_attr is None) == (other.edge_attr is None)
    assert one.edge_attr is None or torch.equal(one.edge_attr, other.edge_attr)


@given(molecule_lists())
def test_from_a_pyg_batch(data):
    batch = GraphBatch.from_pyg(Batch.from_data_list(data))
    assert_collated(batch, data, bonds=True)
    assert_equal(batch, PackedMolecules.from_pyg(data).batch(slice(None)))


@given(molecule_lists())
def test_to_pyg_and_back(data):
    batch = PackedMolecules.from_pyg(data).batch(slice(None))
    pyg = batch.to_pyg()
    expected = Batch.from_data_list(data)
    assert pyg.num_graphs == expected.num_graphs and torch.equal(pyg.batch, expected.batch) and torch.equal(pyg.ptr, expected.ptr)
    assert_equal(GraphBatch.from_pyg(pyg), batch)


def test_a_single_data_is_a_batch_of_one():
    batch = GraphBatch.from_pyg(Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]])))
    assert batch.num_graphs == 1 and batch.targets.shape == (1, 0) and batch.batch.tolist() == [0, 0]


def test_indices_of_32_bits_in_a_batch_of_many_atoms():
    """Pairs of atoms in such a batch have numbers beyond 32 bits."""
    atoms = torch.arange(60_000)
    ends = torch.stack([torch.cat([atoms[:-1], atoms[1:]]), torch.cat([atoms[1:], atoms[:-1]])])
    one, other = (GraphBatch.from_pyg(Data(x=torch.zeros(60_000, 1), edge_index=index)) for index in (ends, ends.int()))
    assert_equal(one, other)
    assert other.col[-1] == 59_998


def test_the_order_of_a_batch_made_by_hand_is_the_callers(packed):
    batch = packed.batch([5, 3, 3, 9])
    assert batch.indices.tolist() == [5, 3, 3, 9]
    assert torch.equal(batch.ptr.diff(), torch.from_numpy(packed.num_nodes_per_graph[[5, 3, 3, 9]]).int())
    assert_tiles(batch)


@pytest.mark.parametrize(
    ("sizes", "tile", "tiles"), [([40, 24, 1], 64, [0, 2, 3]), ([65, 63, 129, 1], 128, [0, 2, 3, 4]), ([64], 64, [0, 1])]
)
def test_tiles_of_a_batch_made_by_hand(sizes, tile, tiles):
    data = [Data(x=torch.zeros(n, 1), edge_index=torch.zeros(2, 0, dtype=torch.long)) for n in sizes]
    for batch in (GraphBatch.from_pyg(Batch.from_data_list(data)), PackedMolecules.from_pyg(data).batch(slice(None))):
        assert batch.tile_nodes == tile and batch.tile_ptr.tolist() == tiles
        assert batch.large_molecules == batch.clone().large_molecules == (max(sizes) > tile)


def test_a_batch_whose_tiles_are_given_may_hold_large_molecules(packed):
    given = packed.batch([1, 2])
    tensors = (given.x, given.ptr, given.rowptr, given.col, given.targets)
    assert GraphBatch(*tensors, tile_nodes=64).large_molecules and GraphBatch(*tensors, tile_ptr=given.tile_ptr).large_molecules
    assert not GraphBatch(*tensors, tile_nodes=64, large_molecules=False).large_molecules
    found = GraphBatch(*tensors)
    assert found.tile_ptr is not None and not found.clone().large_molecules and not found.large_molecules


def test_x_keeps_its_dtype_and_gives_its_gradient(packed):
    pyg = packed.batch([1, 2]).to_pyg()
    pyg.x = pyg.x.double().requires_grad_()
    batch = GraphBatch.from_pyg(pyg)
    assert batch.x.dtype == torch.double
    (2 * batch.x).sum().backward()
    assert torch.equal(pyg.x.grad, torch.full_like(pyg.x, 2))


def test_to_keeps_the_batch_where_it_is(packed):
    batch = packed.batch([1, 2])
    assert batch.to("cpu") is batch and batch.to(torch.device("cpu", 0)).num_graphs == 2
    meta = batch.to("meta")
    assert meta.x.device.type == "meta" and meta.num_nodes == batch.num_nodes


def test_clone_has_memory_of_its_own(packed):
    batch = packed.batch([1, 2])
    clone = batch.clone()
    assert_equal(clone, batch)
    for name in ("x", "ptr", "rowptr", "col", "targets", "indices"):
        assert getattr(clone, name).data_ptr() != getattr(batch, name).data_ptr()


@pytest.mark.parametrize(("levels", "coded"), [(2, True), (0, False)])
def test_features_of_bonds_go_with_the_batch(levels, coded):
    rng = np.random.default_rng(1)
    batch = PackedMolecules.from_pyg([random_data(rng, 9, levels=levels, num_edge_features=3) for _ in range(30)]).batch(slice(4, 20))
    assert batch.edge_attr.shape == (batch.num_edges, 3)
    if coded:
        assert batch.edge_code.dtype == torch.int32 and torch.equal(batch.edge_table[batch.edge_code.long()], batch.edge_attr)
    else:
        assert batch.edge_code is None and batch.edge_table is None
    clone, double, meta = batch.clone(), batch.double(), batch.to("meta")
    assert torch.equal(clone.edge_attr, batch.edge_attr) and clone.edge_attr.data_ptr() != batch.edge_attr.data_ptr()
    assert double.edge_attr.dtype == torch.double and torch.equal(double.edge_attr, batch.edge_attr.double())
    assert meta.edge_attr.device.type == "meta" and meta.edge_attr.shape == batch.edge_attr.shape
    assert (double.edge_code is None) != coded


def test_features_of_bonds_keep_their_dtype_and_give_their_gradient():
    data = random_data(np.random.default_rng(1), 9, num_edge_features=2)
    data.edge_attr = data.edge_attr.double().requires_grad_()
    batch = GraphBatch.from_pyg(data)
    (2 * batch.edge_attr).sum().backward()
    assert batch.edge_attr.dtype == torch.double and torch.equal(data.edge_attr.grad, torch.full_like(data.edge_attr, 2))


def test_batches_do_not_write_into_the_set(packed):
    before = packed.content_hash()
    batch = packed.batch(slice(None))
    batch.x += 1
    batch.targets += 1
    assert packed.content_hash() == before


def test_repr(packed):
    assert repr(packed.batch([0])).startswith("GraphBatch(num_graphs=1, num_nodes=")


EDGE = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (Data(x=torch.zeros(2, 1), edge_index=EDGE, batch=torch.tensor([1, 0])), "not sorted"),
        (Data(x=torch.zeros(2, 1), edge_index=EDGE, batch=torch.tensor([0, 1])), "connects two molecules"),
        (Data(x=torch.zeros(2, 1), edge_index=EDGE[:, :1]), "one direction only"),
        (Data(x=torch.zeros(2, 1), edge_index=EDGE, edge_attr=torch.zeros(3, 1)), "`edge_attr` has 3 rows for 2 bonds"),
    ],
)
def test_bad_pyg_batches(data, match):
    with pytest.raises(UserError, match=match):
        GraphBatch.from_pyg(data)


def test_another_default_device(packed):
    """Batches and PyG's data are on the CPU, wherever PyTorch makes new tensors."""
    with torch.device("meta"):
        batch, data = packed.batch(slice(None)), packed.to_pyg()
    assert_equal(batch, packed.batch(slice(None)))
    assert {tensor.device.type for item in data for tensor in item.to_dict().values()} == {"cpu"}


@pytest.mark.parametrize("name", ["y", "descriptors"])
def test_a_row_for_each_atom_is_none_for_each_molecule(name):
    """Reshaped, the rows of molecules of different sizes would mix."""
    data = [Data(x=torch.zeros(n, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), **{name: torch.zeros(n, 1)}) for n in (2, 4)]
    with pytest.raises(UserError, match=rf"`{name}` has the shape \[6, 1\] for 2 graphs"):
        GraphBatch.from_pyg(Batch.from_data_list(data))
