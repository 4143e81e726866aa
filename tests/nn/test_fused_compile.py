"""backend=fused works under torch.compile and refuses the transforms of torch.func."""

import pytest
import torch
from compiler import needs_extension
from fused_cases import as_dtype, molecules_with_targets, pair
from torch import nn
from torch.autograd import forward_ad

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn import GCN, MoleculeNet

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    return molecules_with_targets()


@pytest.fixture(scope="module")
def batch(molecules) -> GraphBatch:
    return molecules.batch(slice(None))


def test_a_compiled_model_is_as_precise_as_the_switch_says_now(batch):
    """PyTorch compiles again after a change between highest and the others, but not between high and medium."""
    asked = []

    def keep(graph, inputs):
        precisions = [
            arg for node in graph.graph.nodes if "molgcn" in str(node.target) for arg in node.args if arg in ("float32", "tf32", "bf16")
        ]
        return lambda *args: asked.extend(precisions) or graph(*args)

    compiled = torch.compile(GCN(11, 8, 2, 1, backend="fused").eval(), backend=keep)
    try:
        for switch in ("highest", "medium", "high", "highest"):
            torch.set_float32_matmul_precision(switch)
            with torch.no_grad():
                compiled(batch)
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
    assert asked == ["float32", "tf32", "tf32", "float32"]


def test_torch_compile(batch):
    model = GCN(11, 16, 3, 1, backend="fused", norm="batch", residual=True).eval()
    compiled = torch.compile(model, backend="aot_eager")
    assert torch.allclose(compiled(batch), model(batch), atol=1e-6)


def test_a_network_of_other_layers_compiles_in_one_graph(batch):
    model = MoleculeNet(11, 8, 2, 1, conv="gin", backend="fused", norm="layer").eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(batch), model(batch), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"norm": "batch", "residual": True}], ids=str)
def test_torch_compile_with_inductor(molecules, options):
    """Four steps and a forward pass in evaluation give the results without compilation, in one graph.

    Inductor draws the seed of dropout by itself. Of gradients that are rounding, as those of biases before batch norms, Adam would make
    whole steps.
    """
    batches = [molecules.batch(range(start, start + 8)) for start in range(0, 32, 8)]
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = GCN(11, 16, 4, 2, backend="fused", **options)
        call = torch.compile(model, fullgraph=True) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        torch.manual_seed(1)
        losses = []
        for batch in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(call(batch), batch.targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        call.eval()
        with torch.no_grad():
            results.append((torch.stack(losses), call(batches[0]), [p.detach() for p in model.parameters()]))
    (losses, outputs, weights), (right_losses, right_outputs, right_weights) = results[1], results[0]
    torch.testing.assert_close(losses, right_losses, rtol=1e-5, atol=0)
    torch.testing.assert_close(outputs, right_outputs, rtol=1e-4, atol=1e-5)
    for mine, right in zip(weights, right_weights, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transform", ["jvp", "forward_ad", "vmap"])
def test_transforms_are_refused(batch, transform):
    """Silently dropping a tangent would give a wrong derivative."""
    fused, _ = pair()
    batch = as_dtype(batch, torch.float64)
    weights = {name: weight.detach() for name, weight in fused.named_parameters()}

    def predictions(weights):
        return torch.func.functional_call(fused, weights, (batch,))

    def transformed():
        if transform == "jvp":
            torch.func.jvp(predictions, (weights,), (weights,))
        elif transform == "vmap":
            torch.func.vmap(predictions)({name: torch.stack([weight] * 2) for name, weight in weights.items()})
        else:
            with forward_ad.dual_level():
                predictions({name: forward_ad.make_dual(weight, weight) for name, weight in weights.items()})

    assert predictions(weights).isfinite().all()
    with pytest.raises(NotImplementedError, match=r"torch\.func.*backend=pyg"):
        transformed()
