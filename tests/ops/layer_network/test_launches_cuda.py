"""Steps of a network share launches on CUDA, each step exactly one."""

import pytest
import torch
from layer_network_cases import NETWORKS, random_call, spec_of
from stack_cases import H100

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.backward import WeightGrads
from molgcn.ops.layer_network.launches_cuda import backward_launches, forward_launches
from molgcn.ops.layer_network.passes import Pass, saved_numbers
from molgcn.ops.layer_network.spec import LayerNetworkSpec

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
        step for launch in launches for step in (launch.before, launch.gather, launch.step, launch.then, launch.after) if step is not None
    ]
    assert parts == list(run.program.steps)
    run = pass_of(spec_of(network), backward=True, training=training)
    grad_launches = backward_launches(run, run.backward.steps, gpu).values()
    parts = [step for launch in grad_launches for step in (launch.before, launch.mask, launch.step, launch.then) if step is not None]
    assert parts == list(run.backward.steps)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_gathers_in_the_launch_of_a_product_read_nothing_that_it_writes(network, training, keeps):
    """Other blocks still read their neighbours' rows, which are not to be written over."""
    call = random_call(spec_of(network, num_layers=4), sizes=[5, 9, 1], dtype=torch.float32, training=training)
    call = call._replace(options=call.options._replace(save_for_backward=keeps))
    run = Pass(call, torch.empty(saved_numbers(call, signs_alone=True)), backward=False, signs_alone=True)
    for step, before, gather, then, after, _ in forward_launches(run, GPU).values():
        if gather is None:
            continue
        source = before or gather
        read = [source.source, gather.bonds, getattr(before, "add", None)]
        written = [end.out for end in (before, gather, step, then, after) if end is not None]
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
    ],
    ids=["gin+", "gcn+", "gine"],
)
def test_launches_of_a_layer(options, forward, backward):
    """Small batches take as many launches for each layer, and one more at the ends of the network."""
    spec = LayerNetworkSpec(in_channels=80, hidden_channels=80, num_layers=12, **options)
    assert len(forward_launches(pass_of(spec, backward=False), GPU)) <= 12 * forward + 1
    run = pass_of(spec, backward=True)
    launches = backward_launches(run, run.backward.steps, GPU)
    assert len([step for step in launches if not isinstance(step, WeightGrads)]) <= 12 * backward + 1
