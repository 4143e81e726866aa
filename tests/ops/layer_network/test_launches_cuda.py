"""Steps of a network share launches on CUDA, each step exactly one."""

import pytest
import torch
from layer_network_cases import NETWORKS, random_call, spec_of
from stack_cases import H100

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.backward import InputGrad, WeightGrads
from molgcn.ops.layer_network.launches_cuda import backward_launches, forward_launches
from molgcn.ops.layer_network.passes import Pass, saved_numbers
from molgcn.ops.layer_network.spec import LayerNetworkSpec
from molgcn.ops.layer_network.steps import Linear

GPU = Gpu(132, H100)
PLUS = {"residual": True, "feed_forward": True}


def pass_of(spec: LayerNetworkSpec, *, backward: bool, sizes: list[int] | None = None, training: bool = True) -> Pass:
    call = random_call(spec, sizes=sizes or [5, 9, 1], dtype=torch.float32, training=training)
    saved = torch.empty(saved_numbers(call, signs_alone=True))
    return Pass(call, saved, backward=backward, signs_alone=True, grad_x=True, grad_bonds=True)


@pytest.mark.parametrize("gpu", [GPU, None], ids=["tensor cores", "cublas"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_step_is_in_one_launch(network, training, gpu):
    run = pass_of(spec_of(network), backward=False, training=training)
    launches = forward_launches(run, gpu).values()
    parts = [
        step
        for launch in launches
        for step in (launch.before, launch.gather, launch.step, launch.then, launch.beside, launch.after)
        if step is not None
    ]
    assert parts == list(run.program.steps)
    run = pass_of(spec_of(network), backward=True, training=training)
    grad_launches = backward_launches(run, run.backward.steps, gpu).values()
    parts = [step for it in grad_launches for step in (it.before, it.mask, it.step, it.then, it.beside) if step is not None]
    assert parts == list(run.backward.steps)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_gathers_in_the_launch_of_a_product_read_nothing_that_it_writes(network, training, keeps):
    """Other blocks still read their neighbours' rows, which are not to be written over."""
    call = random_call(spec_of(network, num_layers=4), sizes=[5, 9, 1], dtype=torch.float32, training=training)
    call = call._replace(options=call.options._replace(save_for_backward=keeps))
    run = Pass(call, torch.empty(saved_numbers(call, signs_alone=True)), backward=False, signs_alone=True)
    for launch in forward_launches(run, GPU).values():
        before, gather = launch.before, launch.gather
        if gather is None:
            continue
        source = before or gather
        read = [source.source, gather.bonds, getattr(before, "add", None)]
        written = [end.out for end in (before, gather, launch.step, launch.then, launch.after) if end is not None]
        ranges = [
            [(rows.address, rows.address + 4 * rows.tensor.numel()) for rows in (run.rows(value) for value in values if value is not None)]
            for values in (read, (value for value in written if value not in run.signs_alone))
        ]
        assert not any(first < other_end and other < end for first, end in ranges[0] for other, other_end in ranges[1])


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        ({"message": "gine", "edge_channels": 80, **PLUS}, 2, 3),
        ({"message": "gcn_edge", "edge_channels": 80, "norm": "batch", **PLUS}, 4, 5),
        ({"message": "gine", "edge_channels": 80, "norm": "batch", "residual": True}, 1, 2),
        ({"message": "sage", "norm": "batch", "residual": True}, 2, 2),
    ],
    ids=["gin+", "gcn+", "gine", "sage"],
)
def test_launches_of_a_layer(options, forward, backward):
    """Small batches take as many launches for each layer, and one more at the ends of the network."""
    spec = LayerNetworkSpec(in_channels=80, hidden_channels=80, num_layers=12, **options)
    assert len(forward_launches(pass_of(spec, backward=False), GPU)) <= 12 * forward + 1
    run = pass_of(spec, backward=True)
    launches = backward_launches(run, run.backward.steps, GPU)
    assert len([step for step in launches if not isinstance(step, WeightGrads)]) <= 12 * backward + 1


@pytest.mark.parametrize("hidden", [10, 100, 600])
def test_products_of_a_sage_layer(hidden):
    """Two products are one launch in forward, up to a width, and two of a gradient are in backward where both weights fit."""
    run = pass_of(LayerNetworkSpec(in_channels=hidden, hidden_channels=hidden, num_layers=2, message="sage", norm="batch"), backward=False)
    products = [step for step in run.program.steps if isinstance(step, Linear)]
    launches = [launch for launch in forward_launches(run, GPU).values() if isinstance(launch.step, Linear)]
    together = [launch for launch in launches if launch.beside is not None]
    assert [[launch.step, launch.beside] for launch in together] == ([products[:2], products[2:]] if hidden <= 100 else [])
    assert run.summed == {launch.step.out for launch in together}
    run = pass_of(run.spec, backward=True)
    grads = [launch for launch in backward_launches(run, run.backward.steps, GPU).values() if isinstance(launch.step, InputGrad)]
    assert len(grads) == (2 if hidden <= 100 else 4)
    assert all(launch.step.grad == launch.beside.grad for launch in grads if isinstance(launch.beside, InputGrad))
