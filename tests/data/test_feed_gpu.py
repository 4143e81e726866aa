"""A GPU gets the same batches from its own memory and from the host's."""

import pytest
import torch
from graphs import assert_collated
from test_loader import FIELDS, poison
from test_resident import KINDS, random_set

from molgcn.data.feed_cuda import ResidentFeed, StagedFeed
from molgcn.data.loader import PackedLoader, PyGLoader
from molgcn.errors import UserError

pytestmark = pytest.mark.gpu


@pytest.fixture(params=KINDS, ids=str)
def molecules(request):
    return random_set(**KINDS[request.param])


@pytest.mark.parametrize("resident", [True, False])
def test_every_batch_is_pygs(molecules, resident):
    data = molecules.to_pyg()
    for item in data:
        item.y = torch.zeros(1, 0) if item.y is None else item.y
    loader = PackedLoader(molecules, 7, device="cuda", resident=resident)
    assert isinstance(loader._feed, ResidentFeed if resident else StagedFeed)
    for _ in range(4):
        for batch in loader:
            assert_collated(batch.to("cpu"), data, bonds=True)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("resident", [True, False])
def test_a_device_that_is_not_the_current_one(molecules, resident):
    for one, other in zip(PackedLoader(molecules, 7, device="cuda:1", resident=resident), PackedLoader(molecules, 7), strict=True):
        assert one.x.device == torch.device("cuda:1")
        for name in FIELDS:
            assert torch.equal(getattr(one, name).cpu().nan_to_num(), getattr(other, name).nan_to_num()), name
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("resident", [True, False])
def test_slots_are_whole_after_poison(molecules, resident):
    cpu = PackedLoader(molecules, 7)
    gpu = PackedLoader(molecules, 7, device="cuda", resident=resident)
    for _ in range(3):
        poison((*cpu._feed.slots, *gpu._feed.slots))
        torch.cuda.synchronize()
        for one, other in zip(gpu, cpu, strict=True):
            for name in ("ptr", "rowptr", "targets", "indices", "tile_ptr", "counts"):
                assert torch.equal(getattr(one.padded, name).cpu().nan_to_num(), getattr(other.padded, name).nan_to_num()), name


@pytest.mark.parametrize("resident", [True, False])
def test_slow_work_on_a_batch_is_done_before_its_slot_is_refilled(molecules, resident):
    expected = [{name: getattr(batch, name) for name in FIELDS} for batch in PyGLoader(molecules, 7)]
    names = [name for name in FIELDS if expected[0][name] is not None]
    sums = []
    for batch in PackedLoader(molecules, 7, device="cuda", resident=resident):
        torch.cuda._sleep(20_000_000)
        sums.append({name: getattr(batch, name).clone() for name in names})
    for one, other in zip(sums, expected, strict=True):
        for name in names:
            assert torch.equal(one[name].cpu().nan_to_num(), other[name].nan_to_num()), name


@pytest.mark.parametrize("resident", [True, False])
def test_each_batch_may_be_asked_for_on_another_stream(molecules, resident):
    expected = [(batch.x, batch.ptr) for batch in PyGLoader(molecules, 7)]
    streams, found = (torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()), []
    batches = iter(PackedLoader(molecules, 7, device="cuda", resident=resident))
    for number in range(len(expected)):
        with torch.cuda.stream(streams[number % 3]):
            batch = next(batches)
            torch.cuda._sleep(20_000_000)
            found.append((batch.x.clone(), batch.ptr.clone()))
    torch.cuda.synchronize()
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(mine.cpu(), right) for mine, right in zip(one, other, strict=True))


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_copies_outlive_the_batch_and_change_one_by_one(molecules, resident, mode):
    expected, kept = list(PyGLoader(molecules, 7)), []
    batches = iter(PackedLoader(molecules, 7, device="cuda", resident=resident))
    for number in range(len(expected)):
        with mode() if number == 0 else torch.enable_grad():
            batch = next(batches)
            kept.append((batch.targets, batch.indices))
            assert not batch.is_changed
        if number > 0:
            batch.targets.add_(1)
            assert batch.is_changed
    for number, ((targets, indices), right) in enumerate(zip(kept, expected, strict=True)):
        assert torch.equal(indices.cpu(), right.indices)
        assert torch.equal(targets.cpu().nan_to_num(), (right.targets + (number > 0)).nan_to_num())


@pytest.mark.parametrize("resident", [True, False])
def test_breaking_off_and_resuming(molecules, resident):
    loader = PackedLoader(molecules, 7, device="cuda", resident=resident)
    first = next(iter(loader)).indices.tolist()
    batches = iter(loader)
    assert next(batches).indices.tolist() == first
    state = loader.state_dict()
    rest = [batch.indices.tolist() for batch in batches]
    other = PackedLoader(molecules, 7, device="cuda", resident=resident)
    other.load_state_dict(state)
    assert [batch.indices.tolist() for batch in other] == rest


def test_a_set_that_does_not_fit(molecules, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 10))
    with pytest.raises(UserError, match=r"dataset\.resident=auto or false"):
        PackedLoader(molecules, 7, device="cuda", resident=True)
    assert isinstance(PackedLoader(molecules, 7, device="cuda")._feed, StagedFeed)


def test_a_captured_step_reads_every_batch(molecules):
    """One graph per slot, replayed while the other slot is filled, gives the sums of eager reading."""
    loader = PackedLoader(molecules, 7, device="cuda", resident=True)
    graphs, outputs, sums, expected = {}, {}, [], []
    for _ in range(3):
        for batch in loader:
            padded = batch.padded
            if id(padded) not in graphs:
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    outputs[id(padded)] = padded.ptr.sum() + padded.counts.sum()
                graphs[id(padded)] = graph
            graphs[id(padded)].replay()
            sums.append(outputs[id(padded)].clone())
            tail = (loader.batch_size - batch.num_graphs) * batch.num_nodes
            sizes = batch.num_graphs + batch.num_nodes + batch.num_edges + len(batch.tile_ptr) - 1
            expected.append(int(batch.ptr.sum()) + tail + sizes)
    assert [int(value) for value in sums] == expected and len(graphs) == 2


@pytest.mark.parametrize("resident", [True, False])
def test_graphs_fill_the_slots(molecules, resident):
    """Each replay reads its batch and fills the next one, also if epochs are short, broken off or read eagerly in between."""
    loader, expected = PackedLoader(molecules, 7, device="cuda", resident=resident), PyGLoader(molecules, 7)
    graphs, outputs = {}, {}

    def read(batch):
        key = batch.padded
        if key not in graphs:
            torch.cuda.synchronize()
            graphs[key] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[key]):
                outputs[key] = {name: getattr(key, name).clone() for name in ("x", "ptr", "targets", "indices", "tile_ptr")}
                torch.cuda._sleep(100_000)
                batch.enqueue_next()
        graphs[key].replay()
        batch.next_is_enqueued()
        return {name: value.clone() for name, value in outputs[key].items()}

    for epoch, (plain, stop) in enumerate([((), 99), ((2, 3), 99), ((0,), 3), ((), 4), ((1,), 99)]):
        loader.set_epoch(epoch)
        expected.set_epoch(epoch)
        for number, (one, other) in enumerate(zip(loader, expected, strict=False)):
            if number == stop:
                break
            found = vars(one.clone()) if number in plain else read(one)
            for name, value in found.items():
                if torch.is_tensor(value):
                    right = getattr(other, name)
                    assert torch.equal(value[: len(right)].cpu().nan_to_num(), right.nan_to_num()), (epoch, number, name)
