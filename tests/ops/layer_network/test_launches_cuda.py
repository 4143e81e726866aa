"""Steps of a network share launches on CUDA, each step exactly one."""

from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from layer_network_cases import NETWORKS, network_options, options_of, passes, random_call
from stack_cases import H100
from tiles_cases import CASES, single

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.nn.network_steps import NetworkOptions
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.grad_launches_cuda import backward_launches
from molgcn.ops.layer_network.gradient_steps import FinishGrad, InputGrad, PoolGrad, WeightGrads
from molgcn.ops.layer_network.launches_cuda import again_launches, forward_launches, pooled_end
from molgcn.ops.layer_network.passes import Pass, saved_numbers
from molgcn.ops.layer_network.steps import Attend, Finish, Linear, values_read
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.ops.layer_network.tiles_cuda import TileSteps

GPU = Gpu(132, H100)
PLUS = {"residual": True, "feed_forward": True}


def pass_of(options: NetworkOptions, *, backward: bool, sizes: list[int] | None = None, training: bool = True) -> Pass:
    call = random_call(options, sizes=sizes or [5, 9, 1], dtype=torch.float32, training=training)
    saved = torch.empty(saved_numbers(call, signs_alone=True))
    return Pass(call, saved, backward=backward, signs_alone=True, grad_x=True, grad_bonds=True)


@pytest.mark.parametrize("gpu", [GPU, None], ids=["tensor cores", "cublas"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_step_is_in_one_launch(network, training, gpu):
    run = pass_of(options_of(network), backward=False, training=training)
    launches = forward_launches(run, gpu).values()
    parts = [
        step
        for launch in launches
        for step in (launch.expand, launch.before, launch.gather, launch.step, *launch.parts, launch.then, launch.beside, launch.after)
        if step is not None
    ]
    assert sorted(parts, key=run.program.steps.index) == list(run.program.steps)
    run = pass_of(options_of(network), backward=True, training=training)
    grad_launches = backward_launches(run, run.backward.steps, gpu).values()
    parts = [
        step
        for it in grad_launches
        for step in (it.added, it.before, it.mask, it.step, it.after, *it.sums, it.then, it.beside)
        if step is not None
    ]
    assert parts == list(run.backward.steps)


@pytest.mark.parametrize("sizes", [[5, 9, 1], [30] * 280], ids=["few atoms", "many"])
@pytest.mark.parametrize("conv", ["gat", "gatv2"])
def test_attention_leaves_moments_and_the_next_layer_sums(conv, sizes):
    """No launch reads rows for a norm alone, also where backward computes them again."""
    options = network_options(in_channels=7, conv=conv, heads=2, hidden_channels=8, num_layers=4, norm="batch")
    run = pass_of(options, backward=False, sizes=sizes)
    launches = forward_launches(run, GPU).values()
    norms = [step for step in run.program.steps if isinstance(step, Finish)]
    assert [launch.leaves for launch in launches if isinstance(launch.step, Attend)] == norms
    run = pass_of(options, backward=True, sizes=sizes)
    left = {launch.leaves for launch in backward_launches(run, run.backward.steps, GPU).values()}
    assert {step for step in run.backward.steps if isinstance(step, FinishGrad)} <= left


@pytest.mark.parametrize("network", NETWORKS)
def test_the_pooling_ends_the_last_layer_unless_its_value_is_read(network):
    """Backward reads it to find the largest. A layer norm has whole rows, and a relu without norm is in the launch of its product."""
    run = pass_of(options_of(network), backward=False)
    launches, last = forward_launches(run, GPU), run.program.steps[-1]
    alone = isinstance(last, Finish) and run.program.norms.get(last.norm) != "layer" and launches[last].step is last
    assert pooled_end(run, launches) is (last if alone and run.program.pool != "max" else None)


@pytest.mark.parametrize(("training", "recompute"), [(True, False), (True, True), (False, False)])
def test_the_poolings_gradient_leaves_sums_for_batch_statistics_alone(training, recompute):
    call = random_call(options_of("gine"), sizes=[5, 9, 1], dtype=torch.float32, training=training)
    call = call._replace(options=call.options._replace(recompute=recompute))
    run = Pass(call, torch.empty(saved_numbers(call, signs_alone=True)), backward=True, signs_alone=True)
    launch, *_ = backward_launches(run, run.backward.steps, GPU).values()
    assert isinstance(launch.step, PoolGrad)
    summed = launch.leaves
    assert (None if summed is None else summed.step) is (run.program.steps[-1] if training else None)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_gathers_in_the_launch_of_a_product_read_nothing_that_it_writes(network, training, keeps):
    """Other blocks still read their neighbours' rows, which are not to be written over."""
    call = random_call(options_of(network, num_layers=4), sizes=[5, 9, 1], dtype=torch.float32, training=training)
    call = call._replace(options=call.options._replace(save_for_backward=keeps))
    run = Pass(call, torch.empty(saved_numbers(call, signs_alone=True)), backward=False, signs_alone=True)
    for launch in forward_launches(run, GPU).values():
        before, gather = launch.before, launch.gather
        if gather is None:
            continue
        source = before or gather
        read = [source.source, gather.bonds, getattr(before, "add", None)]
        written = [end.out for end in (before, gather, launch.step, launch.then, launch.after) if end is not None]
        rows = [run.rows(value) for value in read if value is not None]
        assert not overlaps(rows, (run.rows(value) for value in written if value not in run.signs_alone), in_place=False)


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        ({"conv": "gine", "edge_channels": 80, **PLUS}, 2, 3),
        ({"conv": "gcn_edge", "edge_channels": 80, "norm": "batch", **PLUS}, 4, 5),
        ({"conv": "gine", "edge_channels": 80, "norm": "batch", "residual": True}, 1, 2),
        ({"conv": "sage", "norm": "batch", "residual": True}, 2, 2),
        ({"conv": "gated_gcn", "edge_channels": 80, "norm": "batch", **PLUS}, 6, 7),
        ({"conv": "gatv2", "norm": "batch", "heads": 8}, 2, 3),
    ],
    ids=["gin+", "gcn+", "gine", "sage", "gatedgcn+", "gatv2"],
)
def test_launches_of_a_layer(options, forward, backward):
    """Small batches take as many launches for each layer, and one more at the ends of the network, or two with states of bonds."""
    spec = network_options(in_channels=80, hidden_channels=80, num_layers=12, **options)
    run = pass_of(spec, backward=False)
    ends = 1 + run.program.has_edges
    assert len(forward_launches(run, GPU)) <= 12 * forward + ends
    run = pass_of(spec, backward=True)
    launches = backward_launches(run, run.backward.steps, GPU)
    assert len([step for step in launches if not isinstance(step, WeightGrads)]) <= 12 * backward + ends


@pytest.mark.parametrize("network", NETWORKS)
def test_no_launch_adds_what_its_first_product_writes(network):
    """What is added may be asked for before the products."""
    run = pass_of(options_of(network), backward=False)
    for launch in forward_launches(run, GPU).values():
        if launch.then is not None:
            assert (launch.after or launch.then).add != launch.step.out
    run = pass_of(options_of(network), backward=True)
    for launch in backward_launches(run, run.backward.steps, GPU).values():
        if isinstance(launch.step, InputGrad) and launch.last is not launch.step:
            assert launch.add != launch.step.source.out


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize(("in_channels", "hidden"), [(10, 10), (7, 10), (12, 9)])
def test_products_beside_each_other_read_nothing_that_they_write(in_channels, hidden, project, keeps, recompute):
    """A block may write over the rows that it has read, number by number, and not over others'."""
    options = {"conv": "sage", "norm": "batch", "residual": True, "project": project}
    spec = network_options(in_channels=in_channels, hidden_channels=hidden, num_layers=3, **options)
    call = random_call(spec, sizes=[5, 9, 1], dtype=torch.float32, training=True)
    call = call._replace(options=call.options._replace(save_for_backward=keeps, recompute=recompute))
    run = Pass(call, torch.empty(saved_numbers(call, signs_alone=True)), backward=False, signs_alone=True)
    for launch in forward_launches(run, GPU).values():
        if launch.beside is not None:
            read = [launch.step.source, launch.beside.source]
            assert not overlaps(map(run.rows, read), [run.rows(launch.beside.out)], in_place=True)
    if not keeps:
        return
    run = Pass(call, torch.empty(saved_numbers(call, signs_alone=True)), backward=True, signs_alone=True, grad_x=True)
    for launch in again_launches(run, run.backward.steps).values():
        if launch.beside is not None:
            read = [launch.step.source, launch.beside.source]
            assert not overlaps(map(run.rows, read), [run.rows(launch.beside.out)], in_place=True)
    for launch in backward_launches(run, run.backward.steps, GPU).values():
        if launch.beside is None:
            continue
        results = (launch.step.source, launch.beside.source)
        read = [run.gradient(number) for number in (launch.step.grad, *(result.add for result in results)) if number is not None]
        assert not overlaps(read, [run.gradient(result.out) for result in results], in_place=False)


def overlaps(read, written, *, in_place):
    """Return whether rows that are written share memory with rows that are read, other than number by number if `in_place`."""
    for one, other in product(read, written):
        apart = one.address + 4 * one.tensor.numel() <= other.address or other.address + 4 * other.tensor.numel() <= one.address
        same = in_place and one.address == other.address and one.tensor.shape == other.tensor.shape
        if not apart and not same:
            return True
    return False


@pytest.mark.parametrize(("hidden", "forward", "backward"), [(10, 2, 2), (100, 2, 2), (128, 2, 2), (144, 4, 2), (160, 4, 4), (600, 4, 4)])
def test_products_of_a_sage_layer(hidden, forward, backward):
    """Two products are one launch in forward, up to a width, and two of a gradient are in backward where both weights fit."""
    options = network_options("sage", hidden, hidden, 2, norm="batch")
    run = pass_of(options, backward=False)
    products = [step for step in run.program.steps if isinstance(step, Linear)]
    launches = [launch for launch in forward_launches(run, GPU).values() if isinstance(launch.step, Linear)]
    together = [launch for launch in launches if launch.beside is not None]
    assert len(launches) == forward
    assert [[launch.step, launch.beside] for launch in together] == ([products[:2], products[2:]] if forward == 2 else [])
    assert run.summed == {launch.step.out for launch in together}
    run = pass_of(options, backward=True)
    grads = [launch for launch in backward_launches(run, run.backward.steps, GPU).values() if isinstance(launch.step, InputGrad)]
    assert len(grads) == backward
    assert all(launch.step.grad == launch.beside.grad for launch in grads if isinstance(launch.beside, InputGrad))


@pytest.mark.parametrize("together", [{"gated_gcn": 3}, {"gatv2": 2}], ids=lambda case: next(iter(case)))
@pytest.mark.parametrize(("keeps", "recompute"), [(True, False), (True, True), (False, False)])
def test_weights_of_the_same_rows_are_one_product(together, keeps, recompute):
    """So are their gradients' products, whose results share no memory with rows that other blocks still read."""
    ((network, number),) = together.items()
    call = random_call(options_of(network, 20, num_layers=3), sizes=[5, 9, 1], dtype=torch.float32)
    call = call._replace(options=call.options._replace(save_for_backward=keeps, recompute=recompute))
    saved = torch.empty(saved_numbers(call, signs_alone=True))
    run = Pass(call, saved, backward=False, signs_alone=True)
    launches = [launch for launch in forward_launches(run, GPU).values() if launch.parts]
    assert [1 + len(launch.parts) for launch in launches] == [number] * 3
    for launch in launches:
        read = [launch.step.source] if launch.before is None else [*values_read(launch.before)]
        written = [*([] if launch.before is None else [launch.before.out]), *(step.out for step in (launch.step, *launch.parts))]
        assert not overlaps(map(run.rows, read), map(run.rows, written), in_place=False)
    assert any(launch.before is not None for launch in launches) == bool(call.program.batch_norms)
    if not keeps:
        return
    run = Pass(call, saved, backward=True, signs_alone=True, grad_x=True, grad_bonds=True)
    grads = [launch for launch in backward_launches(run, run.backward.steps, GPU).values() if launch.sums]
    assert [1 + len(launch.sums) for launch in grads] == [number] * 3
    for launch in grads:
        read = [*(step.grad for step in (launch.step, *launch.sums)), *([] if launch.add is None else [launch.add])]
        assert not overlaps(map(run.gradient, read), [run.gradient(launch.last.source.out)], in_place=False)


PREPARED = {"product_operands.cu": {"product_rows.cu"}, "rows_prepare.cu": {"rows_gather.cu", "rows_gather_grad.cu"}}


class Recorder(Launcher):
    """A launcher that runs nothing, and records the file of each launch and whether it may start before the one before has ended."""

    def __init__(self) -> None:
        self.launches: list[tuple[str, bool]] = []
        self.names: list[str] = []

    def gpu(self, device: object) -> Gpu:
        return GPU

    def kernel(self, source: str, name: str, *_: object) -> Any:
        self.names.append(name)
        return SimpleNamespace(launch=lambda *_, overlap=False, **__: self.launches.append((source, overlap)))


@pytest.mark.parametrize("network", ["gine", "feed-forward", "gated_gcn", "gated_gcn, feed-forward"])
def test_launches_that_make_a_norms_input_leave_what_it_needs(network):
    """So that no launch reads all rows for that alone, also where other steps come between."""
    with launching_by(recorder := Recorder()):
        passes(random_call(options_of(network, num_layers=3), dtype=torch.float32), CudaSteps)
    assert not {"rows_moments", "rows_grad_sums"} & {*recorder.names}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("sizes", [[5, 9, 1], [9000]], ids=["few", "many"])
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_overlaps_the_launch_that_prepares_what_it_reads_first(network, sizes, coded, recompute):
    """Kernels read operands, and the bonds' order, before they wait for the launch before them."""
    call = random_call(options_of(network), sizes=sizes, dtype=torch.float32, coded=coded)
    with launching_by(recorder := Recorder()):
        passes(call._replace(options=call.options._replace(recompute=recompute)), CudaSteps)
    assert any(overlap for _, overlap in recorder.launches)
    for (source, _), (following, overlap) in pairwise(recorder.launches):
        assert not (overlap and following in PREPARED.get(source, ())), (source, following)


@pytest.mark.parametrize("sizes", [[5, 9, 1], [128] * 70], ids=["few", "many"])
@pytest.mark.parametrize(
    ("steps_of", "network"), [*((CudaSteps, network) for network in NETWORKS), *((TileSteps, network) for network in CASES)]
)
def test_a_forward_pass_begins_when_all_that_came_before_has_ended(steps_of, network, sizes):
    """Whatever it was may have written parameters, which kernels read before they wait. The kernel for D^-1/2 waits before it reads."""
    training = steps_of is CudaSteps or CASES[network]
    call = single(random_call(options_of(network, 20), sizes=sizes, training=training))
    with torch.no_grad(), launching_by(recorder := Recorder()):
        engine.forward(call, steps_of)
    (source, overlap), *_ = recorder.launches
    assert not overlap or source == "rows_prepare.cu"
