"""Networks of backend=fused whose layers are computed one after another agree with plain PyTorch in float64."""

import pytest
import torch
from compiler import needs_extension
from family_cases import CASES, FUSED, call_of, few_fast
from network_cases import BATCHES, NUM_FEATURES, ONCE, batch_of, network
from test_molecule_net import outcome, padded

from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet

pytestmark = pytest.mark.usefixtures("one_thread")
DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def pair(case: str, device: str = "cpu", **options) -> tuple[MoleculeNet, MoleculeNet]:
    """Return the same network on backends fused and reference, in float64."""
    conv, own = CASES[case]
    fused, reference = (network(conv, {**own, **options}, backend).to(device) for backend in ("fused", "reference"))
    with torch.no_grad():
        for left, right in zip(fused.parameters(), reference.parameters(), strict=True):
            left += 0.1 * torch.randn_like(left)
            right.copy_(left)
    return fused, reference


def on_cpu(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in values.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", few_fast(CASES))
def test_one_step_and_evaluation(case, device):
    """Predictions, running statistics and all gradients agree."""
    fused, reference = pair(case, device)
    for training in (True, False):
        results = [on_cpu(outcome(model.train(training), batch_of("many").to(device))) for model in (fused, reference)]
        torch.testing.assert_close(*results, **EXACT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [name for name in BATCHES if name != "many"])
@pytest.mark.parametrize("conv", FUSED)
def test_other_batches(conv, batch, device):
    fused, reference = pair(f"{conv} gnn+", device)
    torch.testing.assert_close(*(on_cpu(outcome(model, batch_of(batch).to(device))) for model in (fused, reference)), **EXACT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", [f"{conv} {options}" for conv, options in ONCE])
def test_padding_does_not_count(case, device):
    """Predictions, gradients and running statistics of a padded batch are those of the real molecules alone."""
    fused, reference = pair(case, device)
    batch = GraphBatch.from_pyg(batch_of("many"))
    expected = on_cpu(outcome(reference, batch.to(device)))
    batch.x = batch.x.detach()
    slot = padded(batch, 3, 5, 2)
    slot.x[-3:] = torch.nan if fused.embed is None else 7.0  # PyTorch's own embedding multiplies by the padding
    counts, slot = slot.counts.to(device), slot.to(device)
    slot.counts = counts
    slot.x = slot.x.detach().requires_grad_()
    prediction = fused(slot)
    prediction[: batch.num_graphs].square().sum().backward()
    actual = {name: torch.zeros(()) if one.grad is None else one.grad for name, one in fused.named_parameters()}
    actual |= {"prediction": prediction[: batch.num_graphs], "x": slot.x.grad[: batch.num_nodes], **dict(fused.named_buffers())}
    torch.testing.assert_close(on_cpu(actual), {name: expected[name] for name in actual}, **EXACT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("conv", FUSED)
def test_float32(conv, device):
    """Relative L2 errors against float64 are small in evaluation; batch statistics would magnify float32's rounding."""
    fused, reference = pair(f"{conv} gnn+", device)
    expected = outcome(reference.eval(), batch_of("many").to(device))
    batch = batch_of("many").to(device)
    for name in ("x", "edge_attr", "rwse", "bond_rw", "descriptors"):
        batch[name] = batch[name].float()
    actual = outcome(fused.float().eval(), batch)
    for name, value in actual.items():
        if value.is_floating_point() and expected[name].norm() > 0:
            assert (value.double() - expected[name]).norm() <= 5e-5 * expected[name].norm(), name


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_follows_torchs_seed(device):
    fused, _ = pair("gine gnn+", device, dropout=0.4)
    batch = batch_of("many").to(device)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(fused(batch))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    fused.eval()
    assert torch.equal(fused(batch), fused(batch))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("conv", FUSED)
def test_recomputing_leaves_the_results_as_they_are(conv, device):
    """A network of one layer has nothing to gain and keeps its rows."""
    fused, _ = pair(f"{conv} gnn+", device)
    again = fused.on_backend("fused", recompute=True)
    actual, expected = (outcome(model, batch_of("many").to(device)) for model in (again, fused))
    torch.testing.assert_close(on_cpu(actual), on_cpu(expected), **EXACT)
    assert call_of(again, GraphBatch.from_pyg(batch_of("many")).to(device)).options.recompute == (conv != "dmpnn")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "conv", [name if name in ("gine", "gat", "gated_gcn") else pytest.param(name, marks=pytest.mark.slow) for name in FUSED]
)
def test_operators_by_torchs_checks(conv, device):
    """On a GPU the saved tensor has gaps with arbitrary contents, which differ between calls; a CPU shares its memory in another way."""
    fused, _ = pair(f"{conv} norms", device, dropout=0.3)
    call = call_of(fused, GraphBatch.from_pyg(batch_of("many")).to(device))
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    checks += ["test_aot_dispatch_dynamic"] if device == "cpu" else []
    torch.library.opcheck(torch.ops.molgcn.layer_network.default, call.arguments, test_utils=checks)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_a_captured_step_is_the_step(case):
    """A CUDA graph of forward and backward, replayed on another batch of the same shape, gives the bits of a plain call."""
    torch.use_deterministic_algorithms("attention" in case)  # the sums of PyTorch that pool
    fused, _ = pair(case, "cuda", dropout=0.0)
    batch = padded(GraphBatch.from_pyg(batch_of("many")), 3, 5, 2)
    counts, batch = batch.counts.cuda(), batch.to("cuda")
    batch.counts = counts
    parameters = [parameter for parameter in fused.parameters() if parameter.requires_grad]

    def step():
        return torch.autograd.grad(fused(batch).square().sum(), parameters, allow_unused=True)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    batch.x.copy_(torch.rand_like(batch.x))
    graph.replay()
    for one, other in zip(captured, step(), strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


@needs_extension
def test_takes_pygs_batch_and_packed_batches():
    fused, _ = pair("gine gnn+")
    assert torch.equal(fused(batch_of("many")), fused(GraphBatch.from_pyg(batch_of("many"))))


def test_tiles_of_the_loader_reach_the_operator():
    """Tiles are never looked for, which would wait for a GPU, and are promised only where no molecule is larger."""
    fused, _ = pair("gine gnn+")
    batch = GraphBatch.from_pyg(batch_of("many"))
    call = call_of(fused, batch)
    assert (call.graph.tile_ptr, call.graph.most_in_tile) == (None, 0)
    tile_ptr = batch.tile_ptr
    call = call_of(fused, batch)
    assert (call.graph.tile_ptr, call.graph.most_in_tile) == (tile_ptr, batch.tile_nodes)
    batch.large_molecules = True
    assert call_of(fused, batch).graph.most_in_tile == 0


@needs_extension
def test_what_one_operator_cannot_do_is_said():
    fused, _ = pair("gine gnn+")
    fused.feed_forwards[0].norm1.eval()
    with pytest.raises(UserError, match="Batch norms are in another mode"):
        fused(batch_of("many"))
    fused.train()
    fused.convs[1].nn[0].register_forward_hook(lambda *_: None)
    with pytest.raises(UserError, match="would never be called"):
        fused(batch_of("many"))


@needs_extension
def test_a_strategy_of_another_operator_is_refused():
    model = MoleculeNet(NUM_FEATURES, 8, 2, 1, conv="gin", backend="fused", strategy="tile").double()
    with pytest.raises(UserError, match="strategy=tile cannot compute a network of gin layers"):
        model(batch_of("many"))
