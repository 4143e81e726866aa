"""Graph convolutions keep the contract of the operator: schema, derivatives, compilation, strides and errors."""

import pytest
import torch
from compiler import needs_extension
from gcn_reference import gcn_reference
from stack_cases import changed, converted, gcn, layers_of, leaves, random_batch, random_inputs, run, worst

from molgcn.errors import UserError
from molgcn.ops.layer_network.operator import layer_network

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]


def test_not_contiguous_inputs():
    inputs = random_inputs(random_batch([5, 1, 7, 200, 3], 6), 8, 3)
    strided = changed(
        inputs,
        x=inputs.graph.x.detach().T.contiguous().T.requires_grad_(),
        weights=[weight.detach().T.contiguous().T.requires_grad_() for weight in inputs.parameters.weights],
    )
    assert not strided.graph.x.is_contiguous()
    expected = run(gcn_reference, inputs)
    actual = run(gcn, strided)
    assert worst(actual.outputs, expected.outputs) < 1e-11
    assert worst(actual.gradients, expected.gradients) < 1e-11


CHECKED = [{}, {"norm": "batch", "training": True, "residual": True}, {"norm": "layer", "dropout": 0.5, "training": True, "pool": "max"}]


@pytest.mark.parametrize("options", CHECKED)
def test_opcheck(options):
    inputs = random_inputs(random_batch([5, 9, 2], 6, kinds=2), 8, 3, **options)
    torch.library.opcheck(torch.ops.molgcn.layer_network, layers_of(inputs).arguments)


@pytest.mark.parametrize("options", CHECKED)
def test_outputs_are_all_written(options, monkeypatch):
    """Large tensors take over memory that others have used, in which any numbers stand."""
    monkeypatch.setattr("molgcn.ops.gcn_cpu.reused_empty", lambda numbers, dtype: torch.full((numbers,), torch.nan, dtype=dtype))
    inputs = random_inputs(random_batch([5, 9, 2], 6, kinds=2), 8, 3, **options)
    outputs = torch.ops.molgcn.layer_network(*layers_of(inputs).arguments)
    assert not any(bool(output.isnan().any()) for output in outputs)


@pytest.mark.parametrize("options", CHECKED)
def test_gradcheck(options):
    inputs = random_inputs(random_batch([4, 2], 3), 4, 2, **options)
    variables = leaves(inputs)

    def pooled(*_):
        return gcn(inputs).pooled

    assert torch.autograd.gradcheck(pooled, tuple(variables.values()), eps=1e-6, atol=1e-6)


def test_torch_compile():
    batch = random_batch([5, 9, 2], 6)
    inputs = random_inputs(batch, 8, 3, residual=True)
    call = layers_of(inputs)

    def loss(x):
        return layer_network(call._replace(graph=call.graph._replace(x=x))).pooled.square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(loss(inputs.graph.x), inputs.graph.x)
    (actual,) = torch.autograd.grad(compiled(inputs.graph.x), inputs.graph.x)
    assert torch.equal(actual, expected)


def test_second_derivative_is_refused():
    inputs = random_inputs(random_batch([4], 3), 4, 2)
    (grad,) = torch.autograd.grad(gcn(inputs).pooled.sum(), inputs.graph.x, create_graph=True)
    with pytest.raises(RuntimeError, match="backend=reference"):
        grad.sum().backward()


def test_backward_needs_what_forward_kept():
    inputs = random_inputs(random_batch([4], 3), 4, 2)
    with pytest.raises(RuntimeError, match="save_for_backward"):
        gcn(changed(inputs, save_for_backward=False)).pooled.sum().backward()


def test_what_forward_kept_may_come_back_from_anywhere():
    """A hook on saved tensors gives backward other memory, here 16 bytes from the start of a cache line."""

    def elsewhere(tensor):
        room = torch.empty(tensor.numel() * tensor.element_size() + 80, dtype=torch.uint8)
        begin = (16 - room.data_ptr()) % 64
        return room[begin : begin + tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape).copy_(tensor)

    inputs = random_inputs(random_batch([5, 9, 2], 6), 8, 3, norm="batch", training=True)
    expected = run(gcn, inputs)
    with torch.autograd.graph.saved_tensors_hooks(elsewhere, lambda tensor: tensor):
        actual = run(gcn, inputs)
    assert all(torch.equal(gradient, actual.gradients[name]) for name, gradient in expected.gradients.items())


def test_wrong_inputs_are_refused_in_words():
    inputs = random_inputs(random_batch([4, 3], 3), 4, 2)
    none = inputs.graph.col[:0]
    for wrong, message in [
        ({"x": inputs.graph.x[0]}, "x of shape"),
        ({"weights": [inputs.parameters.weights[1], inputs.parameters.weights[0]]}, r"convs.0.lin.weight of shape"),
        ({"rowptr": inputs.graph.rowptr[:-1]}, "rowptr"),
        ({"col": inputs.graph.col.long()}, "int32"),
        ({"col": inputs.graph.col.to("meta")}, "int32 on cpu, got torch.int32 on meta"),
        (
            {"biases": [bias.to("meta") for bias in inputs.parameters.biases]},
            r"convs.0.bias of shape \[4\] in torch.float64 on cpu, got .* on meta",
        ),
        ({"x": inputs.graph.x.float()}, r"convs.0.lin.weight of shape .* in torch.float32 on cpu, got .* in torch.float64"),
        ({"strategy": "vertexes"}, "strategy=vertexes is unknown"),
        ({"tile_nodes": 0}, "tile_nodes=0"),
        ({"counts": inputs.graph.ptr[:2]}, "counts of molecules, atoms and bonds, got 2"),
        ({"seed": torch.tensor([1.0])}, "seed"),
        ({"seed": inputs.seed.to("meta")}, "seed of shape .* in torch.int64 on cpu"),
        ({"ptr": inputs.graph.ptr + 1}, "ptr must run"),
        ({"rowptr": inputs.graph.rowptr.flip(0)}, "rowptr must run"),
        ({"rowptr": inputs.graph.rowptr.clamp(max=int(inputs.graph.rowptr[-1]) - 1)}, "rowptr must run"),
        ({"rowptr": torch.full_like(inputs.graph.rowptr, 5), "col": none}, "rowptr must run"),
        ({"col": inputs.graph.col + 100}, "stay inside their molecule"),
    ]:
        with pytest.raises(ValueError, match=message):
            gcn(changed(inputs, **wrong))
    call = layers_of(inputs)
    with pytest.raises(ValueError, match=r"4 parameters \(convs.0.lin.weight, .*\), got 3"):
        layer_network(call._replace(parameters=call.parameters[:3]))
    for wrong, message in (
        (converted(inputs, torch.bfloat16), "float32 or float64"),
        (changed(inputs, strategy="layer"), "use auto or tile"),
    ):
        with pytest.raises(UserError, match=message):
            gcn(wrong)
