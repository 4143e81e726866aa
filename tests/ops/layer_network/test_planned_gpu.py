"""Plain calls on a GPU replay plans, and give what the registered operator gives. `pytest -m gpu`."""

import copy
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from layer_network_cases import NETWORKS, options_of, random_call, worst_difference
from torch import Tensor, nn

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn import MoleculeNet
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.implementation import Outputs
from molgcn.ops.layer_network.operator import layer_network
from molgcn.ops.layer_network.planned import plan_count

pytestmark = pytest.mark.gpu
SIZES = [5, 9, 0, 18, 1, 30, 1, 7, 22, 40, 64, 3, 120, 70]
SMILES = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "CN1CCC[C@H]1c1cccnc1", "C", "OCC(O)CO", "CC(C)Cc1ccc(cc1)C(C)C(=O)O"]


def operator(call: LayerNetworkCall) -> Outputs:
    return Outputs(*torch.ops.molgcn.layer_network(*call.arguments))


def differentiated(function: Callable[[LayerNetworkCall], Outputs], call: LayerNetworkCall) -> dict[str, Tensor]:
    """Return outputs and gradients by name."""
    parameters = [parameter.clone().requires_grad_() for parameter in call.parameters]
    x, bonds = (None if rows is None else rows.clone().requires_grad_() for rows in (call.graph.x, call.graph.bonds))
    out = function(call._replace(parameters=parameters, graph=call.graph._replace(x=x, bonds=bonds)))
    out.pooled.backward(torch.sin(torch.arange(out.pooled.numel(), device="cuda")).view_as(out.pooled))
    leaves = dict(zip([*call.program.parameters, "x", "bonds"], [*parameters, x, bonds], strict=True))
    found = {name: leaf.grad for name, leaf in leaves.items() if leaf is not None}
    return found | {"pooled": out.pooled.detach(), "statistics": out.new_statistics}


@pytest.mark.parametrize("copies", [1, 8, 60])
@pytest.mark.parametrize("hidden", [12, 64, 80])
@pytest.mark.parametrize("network", NETWORKS)
def test_plans_give_what_the_operator_gives(network, hidden, copies):
    for sizes in (SIZES * copies, SIZES[1:] * copies):
        for training in (True, False):
            call = random_call(
                options_of(network, hidden, 28), sizes=sizes, dtype=torch.float32, device="cuda", coded=hidden != 80, training=training
            )
            call = call._replace(graph=call.graph._replace(tile_ptr=call.graph.tile_ptr.cuda()))
            actual, expected = differentiated(layer_network, call), differentiated(operator, call)
            assert worst_difference(actual, expected) < (1e-4,)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_plan_gives_the_same_bits_when_it_is_a_graph(network):
    """Its kernels are launched one by one at first; from the second run on they are a graph, here with the arguments of two batches."""
    calls = []
    for sizes in (SIZES, SIZES[1:]):
        call = random_call(options_of(network, 20, 28), sizes=sizes, dtype=torch.float32, device="cuda", coded=True, training=True)
        calls.append(call._replace(graph=call.graph._replace(tile_ptr=call.graph.tile_ptr.cuda())))
    first = differentiated(layer_network, calls[0])
    plans, _ = plan_count()
    expected = [first, differentiated(operator, calls[1])]
    for number in (0, 1, 0, 1):
        actual = differentiated(layer_network, calls[number])
        assert worst_difference(actual, expected[number]) < (1e-4,)
        assert number == 1 or all(torch.equal(actual[name], first[name]) for name in first)
    assert plan_count()[0] == plans  # which serve both batches


def model_of(conv: str = "gine", **options) -> MoleculeNet:
    torch.manual_seed(0)
    options = {"norm": "batch", "residual": True, "embed": True, **options}
    return MoleculeNet(28, 32, 3, 1, conv=conv, edge_channels=4, embed_bonds=True, backend="fused", **options).cuda()


@pytest.fixture(scope="module")
def batches() -> list[GraphBatch]:
    molecules = PackedMolecules.from_smiles(SMILES * 4, features="zinc")
    return [GraphBatch.from_packed(molecules, slice(first, first + 9)).to("cuda") for first in range(6)]


def gradients(model: nn.Module, batch: GraphBatch) -> dict[str, Tensor]:
    model.zero_grad()
    model(batch).square().sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def replace_module(model: MoleculeNet) -> None:
    linear = model.convs[1].nn[0]
    model.convs[1].nn[0] = nn.Linear(linear.in_features, linear.out_features).to(linear.weight)


def tie(model: MoleculeNet) -> None:
    model.convs[2].nn[0].weight = model.convs[1].nn[0].weight


def replace(new: Callable[[Tensor], Tensor], attribute: str = "data") -> Callable[[MoleculeNet], None]:
    """Return a function that gives a model new values for a weight."""

    def change(model: MoleculeNet) -> None:
        weight = model.convs[1].nn[0].weight
        values = new(weight)
        if attribute == "data":
            weight.data = values
        else:
            model.convs[1].nn[0].weight = nn.Parameter(values)

    return change


def drawn(weight: Tensor, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(weight)


CHANGES = {
    "parameter replaced": replace(lambda weight: drawn(weight, *weight.shape), "parameter"),
    "data replaced": replace(lambda weight: drawn(weight, *weight.shape)),
    "data not contiguous": replace(lambda weight: drawn(weight, *weight.shape[::-1]).T),
    "data at an odd address": replace(lambda weight: drawn(weight, weight.numel() + 1)[1:].view_as(weight)),
    "module replaced": replace_module,
    "frozen": lambda model: model.convs[1].nn[0].weight.requires_grad_(False),
    "tied": tie,
    "moved": lambda model: model.cpu().cuda(),
}


@pytest.mark.parametrize("how", CHANGES)
def test_models_may_change_between_calls(how, batches):
    model = model_of().eval()
    exact = model.on_backend("reference").cuda().double()
    for change in (None, CHANGES[how]):
        for changed in (model, exact):
            torch.manual_seed(1)
            if change is not None:
                change(changed)
        for batch in (batches[0], batches[3]):
            actual, expected = gradients(model, batch), gradients(exact, batch.double())
            assert worst_difference(actual, expected) < (1e-3,)


def test_a_parameter_of_another_shape_is_refused(batches):
    model = model_of()
    model(batches[0])
    model.convs[1].nn[0].weight.data = torch.randn(7, 7, device="cuda")
    with pytest.raises(ValueError, match=r"expected convs.1.nn.0.weight of shape"):
        model(batches[0])


def test_two_forwards_before_a_backward(batches):
    model = model_of()
    expected = [gradients(model, batch)["convs.0.nn.0.weight"].clone() for batch in batches[:2]]
    model.zero_grad()
    losses = [model(batch).square().sum() for batch in batches[:2]]
    for loss in reversed(losses):
        loss.backward()
    torch.testing.assert_close(model.convs[0].nn[0].weight.grad, expected[0] + expected[1])


def test_a_failed_step_leaves_nothing_behind(batches):
    model = model_of().eval()
    expected = {name: gradient.clone() for name, gradient in gradients(model, batches[0]).items()}

    def fail(gradient: Tensor) -> Tensor:
        raise KeyError("a hook")

    out = model(batches[1])
    out.register_hook(fail)
    with pytest.raises(KeyError):
        out.sum().backward()
    assert all(torch.equal(gradient, expected[name]) for name, gradient in gradients(model, batches[0]).items())


def test_two_models_in_two_threads(batches):
    models = [model_of().eval(), model_of("gcn_edge").eval()]
    expected = [gradients(model, batches[0]) for model in models]
    expected = [{name: gradient.clone() for name, gradient in found.items()} for found in expected]
    found: list = [None, None]

    def loop(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                for batch in reversed(batches):
                    found[index] = gradients(models[index], batch)
            torch.cuda.current_stream().synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=loop, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(one[name], gradient) for name, gradient in other.items())


def test_copies_and_pickles_of_a_model_are_models_of_their_own(batches):
    model = model_of().eval()
    expected = model(batches[0])
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(batches[0]), expected)
        with torch.no_grad():
            copied.convs[0].nn[0].weight.zero_()
        assert torch.equal(model(batches[0]), expected)
        assert not torch.equal(copied(batches[0]), expected)


def test_a_capture_after_plain_calls(batches):
    model = model_of().eval()
    with torch.no_grad():
        expected = model(batches[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = model(batches[0])
        captured.zero_()
        graph.replay()
    torch.testing.assert_close(captured, expected)


def test_a_second_epoch_makes_no_plans(batches):
    model = model_of()
    for batch in batches:
        gradients(model, batch)
    made, _ = plan_count()
    for batch in batches:
        gradients(model, batch)
    assert plan_count()[0] == made


def test_there_is_no_second_derivative(batches):
    model = model_of().eval()
    weight = model.convs[0].nn[0].weight
    (gradient,) = torch.autograd.grad(model(batches[0]).square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="layer_network has no second derivative"):
        gradient.sum().backward()


def test_a_parameter_written_to_before_backward_is_refused(batches):
    model = model_of()
    loss = model(batches[0]).sum()
    with torch.no_grad():
        model.convs[0].nn[0].weight.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
