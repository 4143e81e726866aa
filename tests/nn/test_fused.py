"""backend=fused against backend=pyg, from the same weights."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from compiler import needs_extension
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import prune

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN, backend
from molgcn.ops import gcn_stack

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]

MEMORY_BENCHMARK = Path(__file__).parents[2] / "benchmarks/memory.py"
SMILES = ["CCO", "c1ccccc1O", "C", "N#Cc1ccncc1", "O=C(C)Oc1ccccc1C(=O)O", "[H][H]", "CC(C)CC(N)C(=O)O", "C1CC1"] * 4


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    torch.manual_seed(0)
    return PackedMolecules.from_smiles(SMILES, targets=torch.randn(len(SMILES), 2).numpy(), num_workers=1)


@pytest.fixture(scope="module")
def batch(molecules) -> GraphBatch:
    return molecules.batch(slice(None))


def pair(dtype=torch.float64, seed=0, **options) -> tuple[GCN, GCN]:
    """The same model on both backends."""
    models = []
    for name in ("fused", "pyg"):
        torch.manual_seed(seed)
        models.append(GCN(11, 32, options.get("num_layers", 4), 2, backend=name, **{k: v for k, v in options.items() if k != "num_layers"}))
    return models[0].to(dtype), models[1].to(dtype)


def as_dtype(batch: GraphBatch, dtype: torch.dtype) -> GraphBatch:
    return GraphBatch(batch.x.to(dtype), batch.ptr, batch.rowptr, batch.col, batch.targets.to(dtype))


def relative(a: torch.Tensor, b: torch.Tensor, floor: float = 1e-9) -> float:
    return ((a - b).norm() / max(b.norm().item(), floor)).item()


OPTIONS = [
    dict(zip(("norm", "residual", "embed", "last_activation", "pool", "add_self_loops", "head_layers"), values, strict=True))
    for values in itertools.product(
        (None, "batch", "layer"), (False, True), (False, True), (False, True), ("mean", "sum", "max"), (True, False), (0, 2)
    )
]


@pytest.mark.parametrize("options", OPTIONS[::5], ids=str)
def test_predictions_gradients_and_buffers(batch, options):
    fused, pyg = pair(**options)
    double = as_dtype(batch, torch.float64)
    for training in (True, False):
        inputs = [as_dtype(double, torch.float64) for _ in range(2)]
        for model, own in zip((fused, pyg), inputs, strict=True):
            model.train(training).zero_grad()
            own.x = double.x.clone().requires_grad_()
            model(own).square().sum().backward()
        assert relative(fused(double), pyg(double)) < 1e-10
        if options["pool"] != "max":  # which of a molecule's symmetric atoms is the largest is a matter of rounding
            assert relative(inputs[0].x.grad, inputs[1].x.grad) < 1e-9
        scale = max(parameter.grad.norm().item() for parameter in pyg.parameters())  # of a bias before batch norm: rounding alone
        for (name, left), right in zip(fused.named_parameters(), pyg.parameters(), strict=True):
            assert relative(left.grad, right.grad, 1e-4 * scale) < 1e-9, name
        for (name, left), right in zip(fused.named_buffers(), pyg.buffers(), strict=True):
            assert torch.allclose(left, right, rtol=1e-12), name


@pytest.mark.parametrize("options", [{}, {"norm": "batch", "embed": True}, {"norm": "layer", "head_layers": 2, "init": "kaiming"}], ids=str)
def test_one_seed_one_set_of_weights(options):
    fused, pyg = pair(**options)
    assert list(fused.state_dict()) == list(pyg.state_dict())
    assert all(torch.equal(left, right) for left, right in zip(fused.state_dict().values(), pyg.state_dict().values(), strict=True))
    fused.load_state_dict(pyg.state_dict())


def test_takes_pygs_batch(batch):
    fused, _ = pair(torch.float32)
    assert torch.equal(fused(batch), fused(batch.to_pyg()))


def train(model: GCN, batches: list[GraphBatch], steps: int) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        batch = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), batch.targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("options", [{}, {"norm": "batch", "residual": True}], ids=str)
def test_200_adam_steps_in_float64(molecules, options):
    batches = [as_dtype(molecules.batch(range(start, start + 8)), torch.float64) for start in range(0, 32, 8)]
    models = pair(num_layers=6, **options)
    losses = [torch.tensor(train(model, batches, 200)) for model in models]
    assert losses[0][-8:].mean() < losses[0][:8].mean()
    assert ((losses[0] - losses[1]).abs() / losses[1]).max() < 1e-8
    if options.get("norm") is None:  # Adam turns the rounding in gradients that are zero, those of biases before batch norm, into steps
        for left, right in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert (left - right).abs().max() < 1e-8


def test_first_losses_in_float32(molecules):
    batches = [molecules.batch(range(start, start + 8)) for start in range(0, 32, 8)]
    losses = [torch.tensor(train(model, batches, 20)) for model in pair(torch.float32, num_layers=12)]
    assert ((losses[0] - losses[1]).abs() / losses[1]).max() < 1e-4


def test_dropout_follows_torchs_generator(batch):
    model = GCN(11, 32, 3, 1, backend="fused", dropout=0.3)
    torch.manual_seed(1)
    first, second = model(batch), model(batch)
    torch.manual_seed(1)
    assert torch.equal(model(batch), first)
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_dropout_has_pygs_distribution(batch):
    """Mean and spread over draws of the pooled activations."""
    fused, pyg = pair(dropout=0.4, num_layers=3)
    double = as_dtype(batch, torch.float64)
    with torch.no_grad():
        draws = [torch.stack([model(double) for _ in range(400)]) for model in (fused, pyg)]
    spread = draws[1].std(0)
    assert ((draws[0].mean(0) - draws[1].mean(0)).abs() < 5 * spread * (2 / 400) ** 0.5).all()
    assert (draws[0].std(0) / spread - 1).abs().max() < 0.3


def test_autocast_keeps_working(batch):
    model = GCN(11, 32, 3, 1, backend="fused", embed=True)
    expected = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert relative(model(batch).float(), expected) < 3e-2


def asked_for(batch, monkeypatch):
    """The precision that a model asks the operator for."""
    seen = []
    monkeypatch.setattr("molgcn.nn.fused.gcn_stack", lambda inputs: seen.append(inputs.precision) or gcn_stack(inputs))
    GCN(11, 8, 2, 1, backend="fused")(batch)
    return seen[0]


def test_precision_is_what_torchs_switches_say(batch, monkeypatch):
    assert asked_for(batch, monkeypatch) == "float32"
    with torch.autocast("cpu", torch.bfloat16):
        assert asked_for(batch, monkeypatch) == "bf16"
    try:
        for switch, precision in (("high", "tf32"), ("medium", "bf16"), ("highest", "float32")):
            torch.set_float32_matmul_precision(switch)
            assert asked_for(batch, monkeypatch) == precision
        for switch, precision in (("tf32", "tf32"), ("ieee", "float32")):
            torch.backends.cuda.matmul.fp32_precision = switch
            assert asked_for(batch, monkeypatch) == precision
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


def test_a_compiled_model_is_as_precise_as_the_switch_says_now(batch):
    """PyTorch compiles anew between highest and the others, but not between high and medium."""
    asked = []

    def keep(graph, inputs):
        precisions = [
            arg for node in graph.graph.nodes if "gcn_stack" in str(node.target) for arg in node.args if arg in ("float32", "tf32", "bf16")
        ]
        return lambda *args: asked.append(*precisions) or graph(*args)

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


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"norm": "batch", "residual": True}], ids=str)
def test_torch_compile_with_inductor(molecules, options):
    """Four Adam steps and then forward in evaluation, as without compilation; one graph. (Inductor draws dropout's seed by itself.)"""
    batches = [molecules.batch(range(start, start + 8)) for start in range(0, 32, 8)]
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = GCN(11, 16, 4, 2, backend="fused", **options)
        call = torch.compile(model, fullgraph=True) if compiled else model
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
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


def test_batch_norm_of_one_atom_is_refused(molecules):
    single = PackedMolecules.from_smiles(["[He]"], features="general", num_workers=1).batch([0])
    model = GCN(single.x.shape[1], 8, 2, 1, backend="fused", norm="batch")
    with pytest.raises(ValueError, match="more than 1 value"):
        model(single)


def test_batch_norm_in_another_mode_is_refused(batch):
    model = GCN(11, 8, 3, 1, backend="fused", norm="batch")
    model.norms[0].eval()
    with pytest.raises(UserError, match="train\\(\\) or eval\\(\\)"):
        model(batch)


def test_wrong_use_is_refused_in_words(batch):
    model = GCN(11, 8, 3, 1, backend="fused", strategy="vertex")
    with pytest.raises(UserError, match="auto or stack"):
        model(batch)
    with pytest.raises(UserError, match="one operator"):
        model.convs[0](batch.x, batch.edge_index)


@pytest.mark.parametrize("transform", ["jvp", "forward_ad", "vmap"])
def test_transforms_are_refused(batch, transform):
    """Dropping a tangent in silence would give a wrong derivative."""
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


@pytest.mark.parametrize(
    "computed",
    [
        lambda module: prune.l1_unstructured(module, "weight", 0.5),
        torch.nn.utils.weight_norm,
        torch.nn.utils.spectral_norm,
        torch.nn.utils.parametrizations.weight_norm,
    ],
    ids=["prune", "weight_norm", "spectral_norm", "parametrizations"],
)
def test_weights_that_are_computed(batch, computed):
    """Also after their parameters have changed."""
    batch = as_dtype(batch, torch.float64)
    models = pair(norm="layer", residual=True)
    for model in models:
        torch.manual_seed(0)
        computed(model.convs[1].lin)
        for step in range(2):
            model.zero_grad()
            model(batch).square().sum().backward()
            if step == 0:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 1e-3 * parameter.grad
    fused, reference = (dict(model.named_parameters()) for model in models)
    assert reference.keys() == fused.keys()
    for name, parameter in reference.items():
        assert relative(fused[name].grad, parameter.grad) < 1e-9, name


@pytest.mark.parametrize(
    "register",
    [
        lambda model: model.convs[1].register_forward_hook(lambda *_: None),
        lambda model: model.convs[0].lin.register_forward_pre_hook(lambda *_: None),
        lambda model: model.norms[0].register_full_backward_hook(lambda *_: None),
        lambda model: model.convs[0].register_full_backward_pre_hook(lambda *_: None),
    ],
)
def test_hooks_on_layers_are_refused(batch, register):
    model = GCN(11, 16, 3, 2, backend="fused", norm="layer")
    handle = register(model)
    with pytest.raises(UserError, match="would never be called: backend=fused"):
        model(batch)
    handle.remove()
    model(batch)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.norms[1], "eps", 1.0),
        lambda model: setattr(model.norms[1], "momentum", 0.9),
        lambda model: model.norms.apply(lambda norm: setattr(norm, "momentum", None)),
        lambda model: model.norms.__setitem__(0, nn.BatchNorm1d(32, affine=False)),
        lambda model: model.norms.__setitem__(0, nn.BatchNorm1d(32, track_running_stats=False)),
        lambda model: setattr(model.convs[1], "bias", None),
    ],
    ids=["eps", "momentum", "no momentum", "no weights", "no running statistics", "no bias"],
)
def test_norms_of_several_kinds_are_refused(batch, change):
    model, _ = pair(torch.float32, norm="batch")
    model(batch)
    change(model)
    with pytest.raises(UserError, match=r"all norms the same eps and momentum\. Use backend=pyg"):
        model(batch)


def test_strategies_belong_to_the_backend_that_auto_chose(monkeypatch):
    monkeypatch.setattr(backend, "HAS_CPU_EXTENSION", False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"backend\.strategy=stack belongs to backend=fused"):
        GCN(3, 8, 2, 1, strategy="stack")


def test_without_the_extension(monkeypatch):
    monkeypatch.setattr(backend, "HAS_CPU_EXTENSION", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"pip install -e \."):
        GCN(11, 8, 3, 1, backend="fused")
    assert GCN(11, 8, 3, 1, backend="auto").backend.name == "pyg"


def test_auto_is_fused():
    assert GCN(11, 8, 3, 1).backend.name == "fused"


@pytest.mark.slow
def test_peak_memory_is_a_quarter_of_pygs(molecules, tmp_path):
    """The benchmark's measurement, each in a process of its own, B = 4,096, L = 28, H = 32."""
    molecules.save(tmp_path / "molecules")
    growth = {}
    for name in ("fused", "pyg"):
        command = [sys.executable, str(MEMORY_BENCHMARK), "--packed", str(tmp_path / "molecules"), "--one", name, "32", "28", "None"]
        growth[name] = float(subprocess.check_output(command, text=True))
    assert 1 < growth["fused"] < growth["pyg"] / 4, growth


@pytest.mark.slow
def test_validation_error_within_the_spread_of_seeds():
    """Five seeds, float32, the built-in molecules: the backends end nearer to each other than seeds do."""
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_dataset

    loaded = load_dataset(DatasetConfig(subset=768))
    molecules = loaded.molecules
    scale, shift = molecules.targets.std(0), molecules.targets.mean(0)
    batches, validation = (
        [molecules.batch(part) for part in parts] for parts in ([loaded.splits["train"][i::8] for i in range(8)], [loaded.splits["val"]])
    )
    for batch in (*batches, *validation):
        batch.targets = (batch.targets - torch.from_numpy(shift)) / torch.from_numpy(scale)
    finals = []
    for seed in range(5):
        for name in ("fused", "pyg"):
            torch.manual_seed(seed)
            model = GCN(molecules.num_features, 32, 6, len(scale), backend=name, residual=True)
            train(model, batches, 320)
            with torch.no_grad():
                finals.append(nn.functional.l1_loss(model(validation[0]), validation[0].targets).item())
    fused, pyg = torch.tensor(finals[::2]), torch.tensor(finals[1::2])
    assert abs(fused.mean() - pyg.mean()) < pyg.std()
    assert pyg.mean() < 0.5  # of one standard deviation: it has learnt
