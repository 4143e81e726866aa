"""The steps of a network, forward and backward, agree with the network in plain PyTorch."""

from dataclasses import replace

import pytest
import torch
from family_cases import CASES, call_of, few_fast, pooling_network
from layer_network_cases import NETWORKS, network_options, options_of, passes, random_call
from network_cases import batch_of
from plain_steps import PlainSteps
from torch._subclasses.fake_tensor import FakeTensorMode

from molgcn.data import GraphBatch
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.backward import backward_of
from molgcn.ops.layer_network.builder import Builder
from molgcn.ops.layer_network.check import check
from molgcn.ops.layer_network.gradient_steps import WeightGrads
from molgcn.ops.layer_network.passes import backward_steps
from molgcn.ops.layer_network.program import Program, biases_without_effect
from molgcn.ops.layer_network.steps import BONDS, Value, X


def assert_close(one, other, scale=0.0):
    assert (one - other).norm() <= 1e-11 * max(other.norm().item(), scale) + 1e-14


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", few_fast(case for case in CASES if "attention" not in case))  # which follows the operator
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
    own: dict[str, torch.Tensor] = {}
    for name, gradient in zip(call.program.members, found[2], strict=True):  # columns of a matrix, one part after another
        own[name] = torch.cat([own[name], gradient], 1) if name in own else gradient
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
    call = random_call(options_of(network), training=training)
    gradients = passes(call, PlainSteps).gradients
    zeros = biases_without_effect(call.program, call.norms_of_batch)
    assert bool(zeros) == call.batch_statistics
    largest = max(gradient.abs().max() for gradient in gradients.values())
    for name, gradient in gradients.items():
        if name.endswith("bias"):
            assert not gradient.any() if name in zeros else gradient.abs().max() > 1e-3 * largest


@pytest.mark.parametrize("case", CASES)
def test_a_program_is_its_text(case):
    program = call_of(pooling_network(case), "many").program
    assert Program.from_text(program.text) is program


PROGRAM = Builder(3, 2, dropout=0.5)
PROGRAM.linear(PROGRAM.gather(X, bonds=PROGRAM.linear(BONDS, "lin_edge", 3), eps="eps"), "lin", 4)
PROGRAM.finish(4, "norm", activation="relu", dropout=True, add=PROGRAM.linear(X, "own", 4))
PROGRAM.end_layer()
GATHER, LINEAR, OWN, FINISH = 1, 2, 3, 4


@pytest.mark.parametrize(
    ("step", "change", "said"),
    [
        (GATHER, {"source": 4}, "reads value 4, which no step before it computes"),
        (GATHER, {"source": -1}, "reads value -1"),
        (GATHER, {"aggr": "median"}, "by median"),
        (GATHER, {"bonds": BONDS}, "it adds Value"),
        (GATHER, {"bias": "lin.bias"}, r"expected lin.bias of shape \[3\]"),
        (GATHER, {"out": 2}, "computed before it"),
        (LINEAR, {"out": 9}, "list index out of range|not listed|tuple index"),
        (LINEAR, {"source": X, "weight": "lin_edge.weight"}, r"expected lin_edge.weight of shape \[4, 3\]"),
        (OWN, {"relu": True, "add": 4}, "with relu adds nothing"),
        (OWN, {"weight": "other"}, "got None"),
        (FINISH, {"norm": "other"}, r"expected other.weight of shape \[4\]"),
        (FINISH, {"add": X}, "it adds Value"),
        (FINISH, {"activation": "swish"}, "its activation is swish: expected one of relu, gelu"),
    ],
    ids=str,
)
def test_steps_that_do_not_fit_are_refused(step, change, said):
    program = PROGRAM.program("mean")
    steps = list(program.steps)
    steps[step] = steps[step]._replace(**change)
    with pytest.raises(ValueError, match=said):
        replace(program, steps=tuple(steps))


def test_a_norm_is_of_one_value():
    builder = Builder(3, None, dropout=0.0)
    builder.finish(builder.finish(builder.gather(X), "norm"), "norm")
    builder.end_layer()
    with pytest.raises(ValueError, match="an earlier step has the same norm"):
        builder.program("mean")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pool": "median"}, "pool=median is unknown"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"ends": (1,)}, "the layers end after"),
        ({"ends": ()}, "the layers end after"),
        ({"norms": {"norm": "group"}}, "its norm is group"),
        ({"outs": ()}, "are pooled"),
        ({"outs": (X, 4)}, "are pooled"),
        ({"outs": (4, 99)}, "are pooled"),
        ({"values": ((Value("bonds", 3), Value("atoms", 2)))}, "as the first values|index out of range"),
    ],
    ids=str,
)
def test_a_program_refuses_what_is_out_of_range(change, said):
    with pytest.raises(ValueError, match=said):
        replace(PROGRAM.program("mean"), **change)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "gin", PROGRAM.program("mean").text.replace("/4", "/3"), PROGRAM.program("mean").text[:-9]]
)
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match="not the text of a network's program"):
        Program.from_text(text)


def test_a_program_with_dropout_is_for_training():
    call = random_call(options_of("gin"))
    with pytest.raises(ValueError, match="a program with dropout is for training=True"):
        check(call._replace(options=call.options._replace(training=False)))


@pytest.mark.parametrize("together", [1, 2, 3, 5])
def test_layers_share_a_step_of_weight_gradients(together):
    """Every matrix and bias gets its gradient once, in the wanted number of steps."""
    program = call_of(pooling_network("gine gnn+"), "many").program
    backward = backward_of(program, True, True, together)
    groups = [step.products for step in backward.steps if isinstance(step, WeightGrads)]
    assert len(groups) == -(-len(program.ends) // together)
    names = [name for products in groups for product in products for name in (product.weight, product.bias) if name is not None]
    assert sorted(names) == sorted(name for name in program.parameters if "norm" not in name and not name.endswith("eps"))


@pytest.mark.parametrize(
    ("device", "num_atoms", "steps"),
    [("cuda", 1536, 1), ("cuda", 1537, 3), ("cuda", 8192, 3), ("cuda", 8193, 12), ("cpu", 100, 12)],
)
def test_small_batches_on_a_gpu_share_more_of_them(device, num_atoms, steps):
    call = random_call(network_options("gin", 8, 8, 12, norm="batch"), dtype=torch.float32)
    with FakeTensorMode():
        call = call._replace(graph=call.graph._replace(x=torch.empty(num_atoms, 8, device=device)))
        backward = backward_steps(call, grad_x=True, grad_bonds=False)
    assert sum(isinstance(step, WeightGrads) for step in backward.steps) == steps
