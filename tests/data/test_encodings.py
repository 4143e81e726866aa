import resource
from dataclasses import replace

import numpy as np
import pytest
import torch
from compiler import needs_extension
from graphs import molecule_lists, random_data
from hypothesis import given, settings
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddRandomWalkPE
from torch_geometric.utils import coalesce

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.data.encodings import batch_encodings, random_walks
from molgcn.data.layout import set_encodings, with_encodings
from molgcn.data.loader import PackedLoader, PyGLoader
from molgcn.data.merge_leaves import merge_leaves
from molgcn.errors import UserError

TOLERANCE = 1e-6  # float32 rounding of at most 32 sums of numbers between 0 and 1


def powers(edge_index: Tensor, num_nodes: int, steps: int) -> Tensor:
    """Return P^1 ... P^steps of the definition as dense matrices, float64 [steps, N, N]."""
    adjacency = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    adjacency.index_put_(tuple(edge_index), torch.ones(edge_index.shape[1], dtype=torch.float64), accumulate=True)
    transition = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    return torch.stack([torch.linalg.matrix_power(transition, step) for step in range(1, steps + 1)])


def defined(data: list[Data], rwse: int, bond_rw: int) -> tuple[Tensor, Tensor]:
    """Return the encodings by the definition, with bonds in the order of a packed set."""
    atoms, bonds = [], []
    for item in PackedMolecules.from_pyg(data).to_pyg():
        of_item = powers(item.edge_index, item.num_nodes, max(rwse, bond_rw))
        atoms.append(of_item[:rwse].diagonal(dim1=1, dim2=2).T)
        bonds.append(of_item[:bond_rw, item.edge_index[0], item.edge_index[1]].T)
    return torch.cat(atoms), torch.cat(bonds)


def assert_near(actual: np.ndarray | Tensor | None, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(torch.as_tensor(actual).double(), expected.double(), atol=tolerance, rtol=0)


@given(molecule_lists(max_size=6))
@settings(max_examples=30)
def test_a_set_gets_the_powers_of_the_transition_matrix(data):
    molecules = with_encodings(PackedMolecules.from_pyg(data), rwse=5, bond_rw=7)
    rwse, bond_rw = defined(data, 5, 7)
    assert molecules.rwse.dtype == molecules.bond_rw.dtype == np.float32
    assert_near(molecules.rwse, rwse)
    assert_near(molecules.bond_rw, bond_rw)


@needs_extension
@given(molecule_lists(max_size=6))
@settings(max_examples=30)
def test_without_the_extension_a_set_gets_the_same(data):
    molecules = PackedMolecules.from_pyg(data)
    for fast, plain in zip(set_encodings(molecules, 6, 4), set_encodings(molecules, 6, 4, use_extension=False), strict=True):
        np.testing.assert_array_equal(fast, plain)


@given(molecule_lists(max_size=6))
@settings(max_examples=30)
def test_a_batch_without_encodings_gets_them_from_its_graph(data):
    molecules = PackedMolecules.from_pyg(data)
    batch = molecules.batch(slice(None)).double()
    for actual, expected in zip(batch_encodings(batch, 5, 7), defined(data, 5, 7), strict=True):
        assert_near(actual, expected, 1e-14)


@pytest.fixture(scope="module")
def data() -> list[Data]:
    rng = np.random.default_rng(0)
    return [random_data(rng, size) for size in (1, 30, 2, 7, 3, 300)]


@pytest.fixture(scope="module")
def molecules(data) -> PackedMolecules:
    return PackedMolecules.from_pyg(data)


@pytest.mark.parametrize("size", [1, 2, 25, 300])
def test_atoms_have_what_pyg_gives_them(size):
    """There are no duplicate bonds here, since PyG counts them in the degree only in graphs of up to 2,000 atoms."""
    item = random_data(np.random.default_rng(size), size)
    item.edge_index = coalesce(item.edge_index)
    expected = AddRandomWalkPE(20)(item).random_walk_pe
    assert_near(with_encodings(PackedMolecules.from_pyg([item]), rwse=20).rwse, expected)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # from the CSR matrix that PyG makes
def test_duplicate_bonds_are_walked_as_often_as_they_are_there():
    """PyG does the same in graphs of more than 2,000 atoms."""
    edge_index = torch.tensor([[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]])
    data = [Data(x=torch.ones(size, 1), edge_index=edge_index) for size in (3, 2001)]
    rwse = with_encodings(PackedMolecules.from_pyg(data), rwse=4).rwse
    expected = AddRandomWalkPE(4)(data[1]).random_walk_pe
    assert_near(rwse[3:], expected)
    assert_near(rwse[:3], expected[:3])


def test_atoms_and_bonds_alone():
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    molecules = with_encodings(PackedMolecules.from_pyg([Data(x=torch.ones(4, 1), edge_index=path)]), rwse=2, bond_rw=2)
    assert molecules.rwse.tolist() == [[0, 0.5], [0, 1], [0, 0.5], [0, 0]]
    bonds = [*zip(molecules.neighbors.tolist(), molecules.bond_rw.tolist(), strict=True)]
    assert bonds == [(1, [0.5, 0]), (0, [1, 0]), (2, [1, 0]), (1, [0.5, 0])]  # from the middle there are two ways


def test_an_atom_of_hundreds_of_bonds():
    leaves = torch.arange(1, 301)
    star = torch.stack([torch.cat([leaves, torch.zeros_like(leaves)]), torch.cat([torch.zeros_like(leaves), leaves])])
    molecules = with_encodings(PackedMolecules.from_pyg([Data(x=torch.ones(301, 1), edge_index=star)]), rwse=2)
    assert molecules.degree.dtype == np.uint16
    assert_near(molecules.rwse, torch.tensor([[0, 1], *[[0, 1 / 300]] * 300]))


def test_a_set_is_encoded_once_for_the_steps_asked_for(molecules):
    encoded = with_encodings(molecules, rwse=4)
    assert encoded.rwse.shape == (molecules.num_nodes, 4) and encoded.bond_rw is None
    assert with_encodings(molecules, rwse=4) is encoded and with_encodings(encoded, rwse=4) is encoded
    assert with_encodings(encoded) is not encoded and with_encodings(encoded).rwse is None
    assert with_encodings(molecules) is molecules
    assert with_encodings(molecules, bond_rw=3).bond_rw.shape == (molecules.num_edges, 3)
    assert encoded.content_hash() == molecules.content_hash()  # encodings follow from the graphs and do not change the hash


def test_a_set_whose_leaves_are_merged_is_refused(molecules):
    merged = replace(molecules, leaves_merged=True)
    with pytest.raises(UserError, match="Equal leaves of this set are one row"):
        with_encodings(merged, rwse=2)
    assert merge_leaves(with_encodings(molecules, rwse=2, bond_rw=2)).rwse is None


def test_encodings_go_with_molecules_batches_and_files(molecules, tmp_path):
    encoded = with_encodings(molecules, rwse=4, bond_rw=3)
    chosen = [3, 0, 5]
    batch, whole = encoded.batch(chosen), molecules[chosen].batch(slice(None))
    encoded.save(tmp_path / "set")
    others = [encoded[chosen].batch(slice(None)), batch.clone(), PackedMolecules.load(tmp_path / "set").batch(chosen)]
    for other in [batch, *others]:
        rwse, bond_rw = batch_encodings(whole, 4, 3)
        assert torch.equal(other.rwse, rwse) and torch.equal(other.bond_rw, bond_rw)
    joined = PackedMolecules.concat([encoded, with_encodings(molecules, rwse=2)])
    assert joined.rwse is None and joined.bond_rw is None


def test_a_models_encodings_are_the_batchs_own_where_it_has_them(molecules):
    batch = molecules.batch(slice(None))
    batch.rwse = torch.zeros(batch.num_nodes, 4)
    rwse, bond_rw = batch_encodings(batch, 4, 2)
    assert rwse is batch.rwse and bond_rw.shape == (batch.num_edges, 2)
    assert batch_encodings(batch, 0, 0) == (None, None)
    with pytest.raises(UserError, match=r"holds `rwse` of shape \[\d+, 4\]. Expected \[\d+, 3\]"):
        batch_encodings(batch, 3, 0)


def test_encodings_come_from_pyg_and_go_there(data, molecules):
    encoded = with_encodings(molecules, rwse=4, bond_rw=3)
    batch = Batch.from_data_list(encoded.to_pyg())
    order = torch.randperm(batch.num_edges, generator=torch.Generator().manual_seed(0))
    batch.edge_index, batch.bond_rw = batch.edge_index[:, order], batch.bond_rw[order]
    taken = GraphBatch.from_pyg(batch)
    for other in (taken, GraphBatch.from_pyg(taken.to_pyg())):
        assert torch.equal(other.rwse, torch.tensor(encoded.rwse)) and torch.equal(other.bond_rw, torch.tensor(encoded.bond_rw))


def test_a_batch_of_pygs_is_encoded_likewise(data, molecules):
    item = data[3]
    rwse, bond_rw = batch_encodings(item, 4, 3)
    assert_near(rwse, batch_encodings(molecules.batch(3), 4, 3)[0])
    assert_near(GraphBatch.from_pyg(Data(item.x, item.edge_index, bond_rw=bond_rw)).bond_rw, batch_encodings(molecules.batch(3), 4, 3)[1])
    assert_near(batch_encodings(Batch.from_data_list(data), 4, 0)[0], torch.tensor(with_encodings(molecules, rwse=4).rwse))
    transformed = Batch.from_data_list([AddRandomWalkPE(4)(item.clone()) for item in data])
    assert batch_encodings(transformed, 4, 0)[0] is transformed.random_walk_pe
    assert GraphBatch.from_pyg(transformed).rwse is transformed.random_walk_pe


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rwse": torch.zeros(3, 4)}, r"`rwse` of shape \[3, 4\]. Expected \[2, k\]"),
        ({"random_walk_pe": torch.zeros(2)}, r"`random_walk_pe` of shape \[2\]"),
        ({"bond_rw": torch.zeros(1, 4)}, r"`bond_rw` of shape \[1, 4\]. Expected \[2, k\]"),
    ],
)
def test_encodings_of_another_graph_are_refused(wrong, match):
    with pytest.raises(UserError, match=match):
        GraphBatch.from_pyg(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), **wrong))


def test_a_graph_can_be_exported(molecules):
    """The atoms' own numbers are the columns, so that the export does not depend on the data."""

    class Encodings(torch.nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
            return random_walks(edge_index, torch.arange(x.shape[0]), x.shape[0], 5, 4)

    shapes = ({0: torch.export.Dim("atoms")}, {1: torch.export.Dim("bonds")})
    example = molecules.batch([1, 3])
    program = torch.export.export(Encodings(), (example.x, example.edge_index), dynamic_shapes=shapes)
    for chosen in ([0], [0, 2, 4], slice(None)):
        batch = molecules.batch(chosen)
        for exported, expected in zip(program.module()(batch.x, batch.edge_index), batch_encodings(batch, 5, 4), strict=True):
            assert_near(exported, expected)


@needs_extension
def test_a_molecule_of_thousands_of_atoms_takes_memory_for_a_few_columns():
    size = 20_000  # a matrix of all pairs would be 1.6 GB
    ring = torch.arange(size)
    both = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    molecules = PackedMolecules.from_pyg([Data(x=torch.ones(size, 1), edge_index=both)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rwse = with_encodings(molecules, rwse=4).rwse
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB
    assert_near(rwse, torch.tensor([0, 1 / 2, 0, 3 / 8]).expand(size, 4))


@pytest.mark.parametrize("loader", [PackedLoader, PyGLoader])
def test_every_loader_gives_the_encodings_that_a_batch_would_compute(molecules, loader):
    encoded = with_encodings(molecules, rwse=4, bond_rw=3)
    for batch in loader(encoded, 4):
        rwse, bond_rw = batch_encodings(molecules.batch(batch.indices.numpy()), 4, 3)
        assert torch.equal(batch.rwse, rwse) and torch.equal(batch.bond_rw, bond_rw)


def test_a_padded_batch_holds_the_encodings_of_its_slot(molecules):
    for batch in PackedLoader(with_encodings(molecules, rwse=4, bond_rw=3), 4):
        assert torch.equal(batch.padded.rwse[: batch.num_nodes], batch.rwse)
        assert torch.equal(batch.padded.bond_rw[: batch.num_edges], batch.bond_rw)
        assert batch.padded.rwse.isfinite().all() and batch.padded.bond_rw.isfinite().all()
