from itertools import chain

import numpy as np
import pytest
import torch
from compiler import needs_extension
from graphs import assert_collated, assert_tiles, molecule_lists, random_data
from hypothesis import given, settings
from hypothesis import strategies as st

from molgcn.data import PackedMolecules
from molgcn.data import loader as loaders
from molgcn.data.loader import PackedLoader, PyGLoader
from molgcn.errors import UserError

FIELDS = ("x", "ptr", "rowptr", "col", "targets", "indices", "tile_ptr", "edge_index", "batch", "descriptors")


@pytest.fixture
def molecules():
    rng = np.random.default_rng(1)
    return PackedMolecules.from_pyg([random_data(rng, int(n), num_descriptors=3) for n in rng.integers(1, 30, 50)])


def poison(slots):
    for slot in slots:
        for tensor in slot.tensors():
            tensor.fill_(float("nan") if tensor.is_floating_point() else -(2**30))


@needs_extension
@settings(max_examples=60)
@given(molecule_lists(), st.integers(1, 12), st.integers(0, 99), st.booleans(), st.integers(1, 3))
def test_every_batch_of_many_epochs_is_pygs(data, batch_size, seed, shuffle, num_threads):
    """Both slots are poisoned before each fill, so that remains of an earlier batch would show."""
    packed = PackedMolecules.from_pyg(data)
    reader = PackedLoader(packed, batch_size, shuffle, seed, num_threads=num_threads)
    for _ in range(4):
        seen = []
        start = reader.sampler.begin()
        for number in range(start, len(reader)):
            poison(reader._feed.slots)
            batches = reader._feed.read(reader.plan(reader.sampler.epoch), number)
            batch = next(batches)
            assert_collated(batch, data, bonds=True)
            seen += batch.indices.tolist()
            batches.close()
            reader.sampler.advance()
        assert sorted(seen) == list(range(len(data)))
    for batch in reader:
        assert_collated(batch, data, bonds=True)


@needs_extension
@settings(max_examples=30)
@given(molecule_lists(), st.integers(1, 12))
def test_a_short_batch_keeps_its_shape(data, batch_size):
    packed = PackedMolecules.from_pyg(data)
    reader = PackedLoader(packed, batch_size)
    poison(reader._feed.slots)
    shapes = set()
    for batch in reader:
        padded = batch.padded
        shapes.add(tuple(getattr(padded, name).shape for name in ("x", "ptr", "rowptr", "col", "targets", "indices", "tile_ptr")))
        counts = [batch.num_graphs, batch.num_nodes, batch.num_edges, len(batch.tile_ptr) - 1]
        assert padded.counts.tolist() == padded.clone().counts.tolist() == padded.double().counts.tolist() == counts
        assert torch.all(padded.ptr[batch.num_graphs :] == batch.num_nodes)
        assert torch.all(padded.rowptr[batch.num_nodes :] == batch.num_edges)
        assert torch.all(padded.tile_ptr[len(batch.tile_ptr) - 1 :] == batch.num_graphs)
        assert torch.all(padded.indices[batch.num_graphs :] == -1) and torch.all(padded.targets[batch.num_graphs :].isnan())
        assert torch.equal(padded.indices[: batch.num_graphs], batch.indices)
        for name in ("x", "ptr", "rowptr", "col", "targets", "tile_ptr"):
            part = getattr(batch, name)
            assert torch.equal(getattr(padded, name)[: len(part)].nan_to_num(), part.nan_to_num())
    assert len(shapes) == 1 and padded.num_graphs == min(batch_size, len(packed))


def test_a_batch_size_beyond_the_set_takes_no_memory(molecules):
    loader = PackedLoader(molecules, 10**12)
    assert loader.capacity.graphs == len(molecules)
    assert [batch.num_graphs for batch in loader] == [len(molecules)]


@pytest.mark.parametrize("num_threads", [0, -1])
def test_no_thread_gathers_nothing(molecules, num_threads):
    with pytest.raises(UserError, match=rf"num_threads={num_threads} is not valid: expected at least 1"):
        PackedLoader(molecules, 8, num_threads=num_threads)


@pytest.mark.parametrize(("num_workers", "tile_nodes"), [(0, None), (2, None), (0, 48), (0, 16)])
def test_both_loaders_give_the_same_batches(molecules, num_workers, tile_nodes):
    packed = PackedLoader(molecules, 8, seed=3, tile_nodes=tile_nodes)
    pyg = PyGLoader(molecules, 8, seed=3, num_workers=num_workers, tile_nodes=tile_nodes)
    for _ in range(2):
        for one, other in zip(packed, pyg, strict=True):
            for name in FIELDS:
                assert torch.equal(getattr(one, name).nan_to_num(), getattr(other, name).nan_to_num()), name
                assert getattr(one, name).dtype == getattr(other, name).dtype
            assert one.tile_nodes == other.tile_nodes == one.padded.tile_nodes == (tile_nodes or molecules.tile_nodes)
            large = molecules.largest > one.tile_nodes
            assert one.large_molecules == other.large_molecules == one.padded.large_molecules == large
            assert one.num_graphs == other.num_graphs
            assert_tiles(one)


def test_both_loaders_let_a_single_molecule_join_in_a_slot_with_room(molecules):
    molecules = molecules[np.arange(25)]
    packed, pyg = (kind(molecules, 8, seed=3, join_single=True) for kind in (PackedLoader, PyGLoader))
    for _ in range(2):
        sizes = []
        for one, other in zip(packed, pyg, strict=True):
            assert all(torch.equal(getattr(one, name).nan_to_num(), getattr(other, name).nan_to_num()) for name in FIELDS)
            sizes.append((one.num_graphs, one.padded.num_graphs))
        assert sizes == [(8, 9), (8, 9), (9, 9)] and len(packed) == len(pyg) == 3
    assert PackedLoader(molecules[np.arange(24)], 8, join_single=True).capacity.graphs == 8


def test_without_the_extension_numpy_gathers_the_same_batches(molecules, monkeypatch, caplog):
    expected = [batch.clone() for batch in PackedLoader(molecules, 8, tile_nodes=48)]
    monkeypatch.setattr(loaders, "HAS_EXTENSION", False)
    loaders.warn_of_numpy.cache_clear()
    PackedLoader(molecules, 8)
    for one, other in zip(PackedLoader(molecules, 8, tile_nodes=48), expected, strict=True):
        assert one.tile_nodes == other.tile_nodes == 48
        for name in FIELDS:
            assert torch.equal(getattr(one, name).nan_to_num(), getattr(other, name).nan_to_num()), name
    assert caplog.text.count("pip install -e .") == 1


@pytest.mark.parametrize(("levels", "coded"), [(2, True), (0, False)])
def test_both_loaders_and_numpy_give_the_same_bonds(levels, coded, monkeypatch):
    rng = np.random.default_rng(1)
    data = [random_data(rng, int(n), levels=levels, num_edge_features=3) for n in rng.integers(1, 30, 50)]
    molecules = PackedMolecules.from_pyg(data)
    expected = [batch.clone() for batch in PackedLoader(molecules, 8, seed=3)]
    monkeypatch.setattr(loaders, "HAS_EXTENSION", False)
    for loader in (PyGLoader(molecules, 8, seed=3), PackedLoader(molecules, 8, seed=3)):
        for one, other in zip(loader, expected, strict=True):
            for name in ("edge_code", "edge_table", "edge_attr"):
                values = getattr(one, name), getattr(other, name)
                assert (values[0] is None) == (values[1] is None) == (name != "edge_attr" and not coded)
                assert values[0] is None or (torch.equal(*values) and values[0].dtype == values[1].dtype)


@pytest.mark.parametrize("kind", [PackedLoader, PyGLoader])
def test_resumes_in_the_middle_of_an_epoch(molecules, kind):
    whole, first, second = (kind(molecules, 8, seed=5) for _ in range(3))
    expected = [batch.indices.tolist() for _ in range(2) for batch in whole]
    batches, seen = iter(first), []
    for _ in range(3):
        seen.append(next(batches).indices.tolist())
    second.load_state_dict(first.state_dict())
    second.set_epoch(0)
    assert seen + [batch.indices.tolist() for _ in range(2) for batch in second] == expected


@pytest.mark.parametrize("kind", [PackedLoader, PyGLoader])
def test_ranks_share_the_set(molecules, kind):
    shares = [[i for batch in kind(molecules, 8, rank=rank, world_size=3) for i in batch.indices.tolist()] for rank in range(3)]
    assert [len(share) for share in shares] == [16, 16, 16] and len(set(chain(*shares))) == 48


@needs_extension
def test_a_kept_batch_raises_instead_of_showing_another(molecules):
    kept = list(PackedLoader(molecules, 8))
    with pytest.raises(UserError, match=r"batch\.clone"):
        _ = kept[0].x
    clones = [batch.clone() for batch in PackedLoader(molecules, 8)]
    again = list(PyGLoader(molecules, 8))
    assert all(torch.equal(one.x, other.x) and torch.equal(one.tile_ptr, other.tile_ptr) for one, other in zip(clones, again, strict=True))


@needs_extension
def test_targets_and_indices_may_be_kept(molecules):
    kept = [(batch.indices, batch.targets) for batch in PackedLoader(molecules, 8)]
    for indices, targets in kept:
        assert np.array_equal(molecules.targets[indices.numpy()], targets.numpy(), equal_nan=True)


@needs_extension
def test_the_last_batch_stays_until_the_next_epoch(molecules):
    reader = PackedLoader(molecules, 8)
    *_, batch = reader
    assert batch.x.shape == (batch.num_nodes, 3)
    next(iter(reader))
    with pytest.raises(UserError, match="gone"):
        _ = batch.x


@needs_extension
def test_two_readings_at_a_time_are_refused(molecules):
    reader = PackedLoader(molecules, 8)
    with pytest.raises(RuntimeError, match="second loader"):
        for _ in zip(reader, reader, strict=True):
            pass


def test_breaking_off_starts_the_epoch_again(molecules):
    reader = PackedLoader(molecules, 8)
    first = next(iter(reader)).indices.tolist()
    assert next(iter(reader)).indices.tolist() == first
    assert sum(batch.num_graphs for batch in reader) == 50


@needs_extension
def test_a_replaced_x_gives_its_gradient(molecules):
    batch = next(iter(PackedLoader(molecules, 8)))
    batch.x = batch.x.clone().requires_grad_()
    batch.x.sum().backward()
    assert torch.equal(batch.x.grad, torch.ones_like(batch.x))


def test_memory_mapped_sets_are_read_as_they_are(molecules, tmp_path):
    molecules.save(tmp_path / "set")
    for one, other in zip(PackedLoader(PackedMolecules.load(tmp_path / "set"), 8), PyGLoader(molecules, 8), strict=True):
        assert torch.equal(one.x, other.x) and torch.equal(one.col, other.col)


@needs_extension
@pytest.mark.parametrize("kind", [PackedLoader, PyGLoader])
def test_targets_in_float64_arrive_with_all_their_digits(kind, tmp_path):
    values = 1e8 + np.random.default_rng(0).normal(size=(13, 2))
    values[::4, 1] = np.nan
    packed = PackedMolecules.from_smiles(["C" * size for size in range(1, 14)], values, num_workers=0)
    packed.save(tmp_path / "set")
    packed = PackedMolecules.concat([PackedMolecules.load(tmp_path / "set")[:4], PackedMolecules.load(tmp_path / "set")[4:]])
    seen = 0
    for batch in kind(packed, 5, shuffle=True):
        seen += batch.num_graphs
        np.testing.assert_array_equal(batch.targets.numpy(), values[batch.indices.numpy()])
        assert batch.padded is None or batch.padded.targets[batch.num_graphs :].isnan().all()
    assert seen == 13 and batch.num_graphs == 3
