"""Plans that are replayed under emulation give the bits of launches that are planned for each call."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from emulated import gpu_memory, run_emulated
from guarded import guarded
from layer_network_cases import NETWORKS, Found, options_of, padded, passes, random_call, worst_difference, worst_gradient
from stack_cases import H100, changed, converted, layers_of, random_batch, random_inputs
from within_backward import within_backward

from molgcn.cuda_runtime.launch import Gpu
from molgcn.cuda_runtime.plan import recording
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import features_bytes, next_fit
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.implementation_cuda import planned_call
from molgcn.ops.layer_network.plan_key import Key, capacity
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.ops.layer_network.tiles_cuda import TileSteps

FAST = {"gine": 1, "feed-forward": 132, "dmpnn": 1, "every layer": 132, "gated_gcn": 1}  # networks of the default tier, and its GPU's size
PLANNED = [name for name in NETWORKS if NETWORKS[name].get("pool") != "none"]
gpus = pytest.mark.parametrize("multiprocessors", [1, 132])  # few, so that a block has several tiles, and more than there are tiles
networks = pytest.mark.parametrize("network", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PLANNED])


def replayed(call: LayerNetworkCall, kernels: str = "rows") -> Found:
    """Return the results of both passes by plans; memory that no kernel wrote is NaN."""
    planned, has_bonds = planned_call(call, kernels), call.graph.bonds is not None
    assert planned is not None
    with torch.no_grad():
        planned.run(call)  # makes the plan, in memory of its own
        with gpu_memory():
            out, _, kept, backward = planned.run(call)
        grad = torch.sin(torch.arange(out.pooled.numel(), dtype=torch.float64)).view_as(out.pooled).to(out.pooled)
        grad[call.graph.ptr.diff() == 0] = 0
        needed = (True, has_bonds, *(True for _ in call.learnt))
        backward(kept, grad, needed)
        with gpu_memory():
            of_x, of_bonds, found = backward(kept, grad, needed)
    gradients = dict(zip(call.program.parameters, found, strict=True)) | {"x": of_x} | ({"bonds": of_bonds} if has_bonds else {})
    return Found({"pooled": out.pooled, "statistics": out.new_statistics}, gradients)


def call_of(network: str, **options) -> LayerNetworkCall:
    in_channels = 7 if network == "dmpnn" else 8  # the first is copied into wider rows
    options = {"coded": len(network) % 2 == 0, "training": len(network) % 3 > 0, **options}
    return random_call(options_of(network, 12, in_channels=in_channels), dtype=torch.float32, **options)


def check(actual: Found, expected: Found) -> None:
    for name, tensor in (expected.outputs | expected.gradients).items():
        assert torch.equal((actual.outputs | actual.gradients)[name], tensor), name


@pytest.mark.parametrize(
    ("network", "multiprocessors"),
    [pytest.param(name, of, marks=() if FAST.get(name) == of else pytest.mark.slow) for name in PLANNED for of in (1, 132)],
)
def test_the_bits_of_calls_that_are_planned_each(emulate, network, multiprocessors):
    """A batch of another size takes the same plan, whose grids have a block more than it needs."""
    emulate.properties = Gpu(multiprocessors, H100)
    for sizes in ([5, 9, 0, 18, 1, 30, 1, 7], [5, 9, 0, 18, 1, 30]):
        call = call_of(network, sizes=sizes)
        with gpu_memory():
            expected = passes(call, CudaSteps)
        check(replayed(call), expected)


@gpus
def test_launches_on_tiles(emulate, multiprocessors):
    """More warps share the sums over all atoms than with a grid of the batch's own, which rounds otherwise."""
    emulate.properties = Gpu(multiprocessors, H100)
    call = call_of("gin, layer norm, sum")
    with gpu_memory():
        expected = passes(call, TileSteps)
    found = replayed(call, "tiles")
    assert torch.equal(found.outputs["pooled"], expected.outputs["pooled"])
    assert worst_gradient(found, expected) < (1e-6,)


GCN = {
    "linear last": {"residual": True, "dropout": 0.3},
    "layer norm": {"norm": "layer", "last_activation": True, "pool": "sum", "add_self_loops": False},
    "batch norm, max": {"norm": "batch", "pool": "max", "training": False},
}


def gcn_inputs(sizes: list[int], **options: object) -> GcnCall:
    """Return graph convolutions of x with more columns than a tile has."""
    inputs = random_inputs(random_batch(sizes, 40, bonds_per_atom=1.2), 12, 3, **{"training": True, **options})
    return converted(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr)), torch.float32)


@gpus
@pytest.mark.parametrize("network", GCN)
def test_one_launch_for_graph_convolutions(emulate, network, multiprocessors):
    """A plan for more tiles has blocks without any, or shares them otherwise, which rounds the sums of gradients otherwise."""
    emulate.properties = Gpu(multiprocessors, H100)
    for sizes in ([5, 9, 18, 1, 30, 1, 7] * 3, [5, 9, 18, 1, 30, 60, 60, 60] * 2, [5, 70, 3, 200, 1, 8]):
        inputs = gcn_inputs(sizes, **GCN[network])
        call = layers_of(inputs)
        graph, (parameters, statistics) = call.graph.mapped(guarded), ([*map(guarded, each)] for each in (call.parameters, call.statistics))
        found = replayed(call._replace(graph=graph, parameters=parameters, statistics=statistics), "tile")
        expected = run_emulated(changed(inputs, x=inputs.graph.x.requires_grad_()))
        assert torch.equal(found.outputs["pooled"], expected.outputs["pooled"])
        *of_parameters, of_x = found.gradients.values()
        assert worst_difference(dict(zip(expected.gradients, [of_x, *of_parameters], strict=True)), expected.gradients) < (1e-6,)


def test_a_retained_graph_has_a_plan_that_discards_nothing(emulate):
    """Backward may discard what forward has saved only if nothing reads it again."""
    inputs = gcn_inputs([5, 9, 18, 1, 30, 60, 60, 60] * 2)
    emulate.properties = Gpu(1, H100, cache_bytes=inputs.network.num_layers * features_bytes(inputs) - 1)
    call = layers_of(inputs)
    planned = planned_call(call, "tile")
    with torch.no_grad():
        out, _, kept, backward = planned.run(call)
        for retained in (False, True):
            room = torch.empty(out.saved.numel() + 32)
            begin = -room.data_ptr() % 128 // 4  # elsewhere it would be copied
            saved = room[begin : begin + out.saved.numel()].copy_(out.saved)
            given = (saved, *kept[1:]), torch.ones_like(out.pooled), (True, False, *(True for _ in call.learnt))
            within_backward(partial(backward, *given), retained)
            same = saved.view(torch.int32) == out.saved.view(torch.int32)
            assert bool(same[2:].all()) == retained  # the first two count blocks at a barrier


@networks
def test_nothing_is_read_beyond_the_batch(emulate, network):
    """A plan's grids are for more atoms, bonds and molecules than there are."""
    emulate.properties = Gpu(4, emulate.properties.shared_limit)
    call = call_of(network)
    graph = call.graph.mapped(guarded)
    replayed(call._replace(graph=graph, parameters=[*map(guarded, call.parameters)], statistics=[*map(guarded, call.statistics)]))


def test_a_padded_batch_gives_the_bits_of_the_batch_alone(emulate):
    """Slots are padded, and steps are warmed up on them before they are captured."""
    call = call_of("gine", coded=False)
    actual, expected = replayed(padded(call, torch.nan)), replayed(call)
    for name, tensor in (expected.outputs | expected.gradients).items():
        found = (actual.outputs | actual.gradients)[name]
        assert torch.equal(found[: len(tensor)], tensor), name
        assert not found[len(tensor) :].any(), name


def test_parameters_may_be_tied_once_a_plan_is_made(emulate):
    call = call_of("gin")
    replayed(call)
    first, second = (list(call.program.parameters).index(f"convs.{layer}.nn.3.weight") for layer in (0, 1))
    parameters = list(call.parameters)
    parameters[second] = parameters[first]
    tied = call._replace(parameters=parameters)
    copied = call._replace(parameters=[parameter.clone() for parameter in parameters])
    check(replayed(tied), replayed(copied))


def test_parameters_of_any_strides_and_addresses(emulate):
    def elsewhere(parameter: torch.Tensor) -> torch.Tensor:
        return parameter.T.contiguous().T if parameter.dim() > 1 else torch.cat([parameter[:1], parameter])[1:]

    call = call_of("gin")
    moved = call._replace(parameters=[*map(elsewhere, call.parameters)], graph=call.graph._replace(x=elsewhere(call.graph.x)))
    check(replayed(moved), replayed(call))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_running_statistics_are_written_where_counters_are_given(emulate, elsewhere):
    call = call_of("feed-forward", training=True)
    expected = replayed(call).outputs["statistics"].flatten(0, 1)
    statistics = [torch.cat([each[:1], each])[1:] if elsewhere else each.clone() for each in call.statistics]  # not aligned
    counters = [torch.tensor(7 + place) for place in range(len(call.program.batch_norms))]
    call = call._replace(statistics=statistics, counters=counters)
    planned, versions = planned_call(call, "rows"), [tensor._version for tensor in (*statistics, *counters)]
    with torch.no_grad():
        outputs, *_ = planned.run(call)
    assert outputs.new_statistics.shape == (2, 0, call.program.hidden_channels)
    assert torch.equal(torch.stack(statistics), expected)
    assert [*map(int, counters)] == [8 + place for place in range(len(counters))]
    assert all(tensor._version > version for tensor, version in zip((*statistics, *counters), versions, strict=True))
    assert planned_call(call._replace(counters=counters[:-1]), "rows").key.counters == 0  # the caller has to write them
    with pytest.raises(ValueError, match="expected counters of shape"):
        planned_call(call._replace(counters=[counter.float() for counter in counters]), "rows")


@pytest.mark.parametrize("network", ["gine", "dmpnn"])
def test_a_plan_keeps_no_memory_of_the_pass_that_it_was_made_from(emulate, monkeypatch, network):
    new_empty, made = torch.Tensor.new_empty, []

    def noted(tensor, *size, **options):
        out = new_empty(tensor, *size, **options)
        made.append(weakref.ref(out))
        return out

    monkeypatch.setattr(torch.Tensor, "new_empty", noted)
    replayed(call_of(network))
    gc.collect()
    assert len(made) > 10
    assert all(reference() is None for reference in made)


def keys_of(num_graphs: int, sizes: np.ndarray) -> set[Key]:
    spec = options_of("gine", 12, in_channels=8)
    call = random_call(spec, sizes=[3], dtype=torch.float32)

    def key(atoms: int) -> Key:
        bonds = 2 * atoms + atoms // 7
        x, ptr, rowptr, col = torch.empty(atoms, 8), torch.empty(num_graphs + 1), torch.empty(atoms + 1), torch.empty(bonds)
        graph = call.graph._replace(x=x, ptr=ptr, rowptr=rowptr, col=col, code=col, tile_ptr=None)
        found = Key.of(call._replace(graph=graph), "rows")
        assert found is not None
        assert found.atoms >= atoms
        assert found.bonds >= bonds
        return found

    return {key(int(atoms)) for atoms in sizes}


@pytest.mark.parametrize("num_graphs", [32, 128, 4096])
def test_batches_of_a_hundred_shapes_share_a_few_plans(emulate, num_graphs):
    """Molecules have 23 +- 4.5 atoms, as ZINC's."""
    atoms = np.random.default_rng(0).normal(23.2, 4.5, (100, num_graphs)).round().clip(1).sum(1)
    assert len(keys_of(num_graphs, atoms)) <= 8


@pytest.mark.parametrize("count", [0, 1, 8, 9, 740, 1536, 1537, 8192, 8193, 100_000])
def test_a_capacity_is_at_most_an_eighth_more(count):
    assert count <= capacity(count) <= max(count + 7, count * 9 / 8, 8)
    assert capacity(capacity(count)) == capacity(count)
    assert (capacity(count) > 8192) == (count > 8192)  # what small batches do differently, all of a capacity do


def test_what_pytorch_computes_has_no_plan(emulate):
    assert Key.of(random_call(options_of("gin", 12, in_channels=8)), "rows") is None  # float64: products by cuBLAS
    assert Key.of(random_call(options_of("gin", 12, in_channels=8), sizes=[], dtype=torch.float32), "rows") is None
    with pytest.raises(RuntimeError, match="its computation calls aten"), recording():
        torch.ones(()) + 1
