"""The steps of a network's spec, forward and backward, agree with the network in plain PyTorch."""

import pytest
import torch
from family_cases import CASES, call_of, pooling_network
from layer_network_cases import NETWORKS, passes, random_call, spec_of
from network_cases import batch_of
from plain_steps import PlainSteps
from torch._subclasses.fake_tensor import FakeTensorMode

from molgcn.data import GraphBatch
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.backward import WeightGrads, backward_of
from molgcn.ops.layer_network.passes import backward_steps
from molgcn.ops.layer_network.program import biases_without_effect, program_of
from molgcn.ops.layer_network.spec import LayerNetworkSpec


def assert_close(one, other, scale=0.0):
    assert (one - other).norm() <= 1e-11 * max(other.norm().item(), scale) + 1e-14


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_passes_are_those_of_plain_pytorch(case, training):
    model = pooling_network(case).train(training)
    batch = GraphBatch.from_pyg(batch_of("many"))
    call = call_of(model, batch)
    statistics = [tensor.clone() for tensor in call.statistics]
    with torch.no_grad():
        outputs = engine.forward(call._replace(statistics=statistics), PlainSteps)
    expected = model(batch) * (100 if model.pool == "norm" else 1)
    assert_close(outputs.pooled, expected)

    grad = torch.randn_like(expected)
    expected.backward(grad)
    wanted = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    for_backward = call._replace(statistics=[] if call.batch_statistics else statistics)
    with torch.no_grad():
        found = engine.backward(for_backward, grad, outputs.saved, PlainSteps, grad_x=True, grad_bonds=call.graph.bonds is not None)
    for tensor, gradient in zip(call.graph[:2], found[:2], strict=True):
        if tensor is not None and tensor.requires_grad:
            tensor.backward(gradient, retain_graph=True)
    own = dict(zip(call.spec.parameters, found[2], strict=True))
    got = {name: own.get(name, parameter.grad) for name, parameter in model.named_parameters()}
    scale = max(gradient.norm().item() for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert_close(got[name], gradient, scale)
    if call.batch_statistics:
        for new, old in zip(outputs.new_statistics.flatten(0, 1), call.statistics, strict=True):
            assert_close(new, old)  # which the model has updated


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_of_biases_before_batch_norm_are_zero(network, training):
    """They are exactly zero, and those of all other biases are not."""
    call = random_call(spec_of(network), training=training)
    gradients = passes(call, PlainSteps).gradients
    zeros = biases_without_effect(program_of(call.spec, call.dropout_rate > 0), call.norms_of_batch)
    assert bool(zeros) == call.batch_statistics
    largest = max(gradient.abs().max() for gradient in gradients.values())
    for name, gradient in gradients.items():
        if name.endswith("bias"):
            assert not gradient.any() if name in zeros else gradient.abs().max() > 1e-3 * largest


@pytest.mark.parametrize("case", CASES)
def test_a_spec_is_its_text(case):
    spec = call_of(pooling_network(case), "many").spec
    assert LayerNetworkSpec.from_string(spec.to_string()) == spec


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"message": "gat"}, "message=gat is unknown"),
        ({"norm": "group"}, "norm=group is unknown"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"edge_channels": 3}, "edge_channels=3"),
        ({"message": "gine"}, "edge_channels=None"),
    ],
    ids=str,
)
def test_a_spec_refuses_what_is_out_of_range(options, said):
    with pytest.raises(ValueError, match=said):
        LayerNetworkSpec(**{"message": "gin", "in_channels": 3, "hidden_channels": 4, "num_layers": 2, **options})


def test_another_text_is_refused():
    with pytest.raises(ValueError, match="starts with"):
        LayerNetworkSpec.from_string("molgcn.network/1 message=gin")


@pytest.mark.parametrize("together", [1, 2, 3, 5])
def test_layers_share_a_step_of_weight_gradients(together):
    """Every matrix and bias gets its gradient once, in the wanted number of steps."""
    spec = call_of(pooling_network("gine gnn+"), "many").spec
    backward = backward_of(program_of(spec, dropout=False), True, True, False, False, together)
    groups = [step.products for step in backward.steps if isinstance(step, WeightGrads)]
    assert len(groups) == -(-spec.num_layers // together)
    names = [name for products in groups for product in products for name in (product.weight, product.bias) if name is not None]
    assert sorted(names) == sorted(name for name in spec.parameters if "norm" not in name and not name.endswith("eps"))


@pytest.mark.parametrize(
    ("device", "num_atoms", "steps"),
    [("cuda", 1536, 1), ("cuda", 1537, 3), ("cuda", 8192, 3), ("cuda", 8193, 12), ("cpu", 100, 12)],
)
def test_small_batches_on_a_gpu_share_more_of_them(device, num_atoms, steps):
    spec = LayerNetworkSpec(in_channels=8, hidden_channels=8, num_layers=12, message="gin", norm="batch")
    call = random_call(spec, dtype=torch.float32)
    with FakeTensorMode():
        call = call._replace(graph=call.graph._replace(x=torch.empty(num_atoms, 8, device=device)))
        backward = backward_steps(call, grad_x=True, grad_bonds=False)
    assert sum(isinstance(step, WeightGrads) for step in backward.steps) == steps
