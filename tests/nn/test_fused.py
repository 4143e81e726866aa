"""backend=fused agrees with backend=pyg from the same weights."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from compiler import needs_extension
from fused_cases import as_dtype, molecules_with_targets, pair, relative, train
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN, MoleculeNet

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]

MEMORY_BENCHMARK = Path(__file__).parents[2] / "benchmarks/memory.py"


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    return molecules_with_targets()


@pytest.fixture(scope="module")
def batch(molecules) -> GraphBatch:
    return molecules.batch(slice(None))


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
        scale = max(parameter.grad.norm().item() for parameter in pyg.parameters())  # a bias before batch norm has only rounding
        for (name, left), right in zip(fused.named_parameters(), pyg.parameters(), strict=True):
            assert relative(left.grad, right.grad, 1e-4 * scale) < 1e-9, name
        for (name, left), right in zip(fused.named_buffers(), pyg.buffers(), strict=True):
            assert torch.allclose(left, right, rtol=1e-12), name


@pytest.mark.parametrize("own", ["lin.weight", "lin_r.weight"], ids=["gcn", "sage"])  # each by operators of its own
def test_the_variance_of_many_equal_atoms_and_a_few_others(own):
    torch.manual_seed(0)
    few, many = torch.randn(2, 8)
    atoms, none = torch.cat([few.expand(3, 8), many.expand(900, 8)]), torch.zeros(0, dtype=torch.int32)
    batch = GraphBatch(atoms, torch.tensor([0, 3, 903], dtype=torch.int32), torch.zeros(904, dtype=torch.int32), none, torch.zeros(2, 0))
    model = MoleculeNet(8, 8, 1, 1, conv="gcn" if own == "lin.weight" else "sage", norm="batch", backend="fused")
    nn.init.eye_(model.convs[0].get_parameter(own))
    model.norms[0].momentum = 1.0
    model(batch)
    assert relative(model.norms[0].running_var.double(), atoms.double().var(0)) < 1e-6


def test_takes_pygs_batch(batch):
    fused, _ = pair(torch.float32)
    assert torch.equal(fused(batch), fused(batch.to_pyg()))


@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.slow), {"norm": "batch", "residual": True}], ids=str)
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
    """Mean and spread of the pooled activations over many draws agree."""
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


class Asked(TorchDispatchMode):
    """Record the precision that our operators are asked for."""

    def __init__(self):
        super().__init__()
        self.precisions = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "molgcn" in str(function):
            self.precisions += [arg for arg in args if arg in ("float32", "tf32", "bf16")]
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def asked_for(batch):
    """Return the precision that a model asks the operator for."""
    with Asked() as asked:
        GCN(11, 8, 2, 1, backend="fused")(batch)
    (precision,) = asked.precisions
    return precision


def test_precision_is_what_torchs_switches_say(batch):
    assert asked_for(batch) == "float32"
    with torch.autocast("cpu", torch.bfloat16):
        assert asked_for(batch) == "bf16"
    try:
        for switch, precision in (("high", "tf32"), ("medium", "bf16"), ("highest", "float32")):
            torch.set_float32_matmul_precision(switch)
            assert asked_for(batch) == precision
        for switch, precision in (("tf32", "tf32"), ("ieee", "float32")):
            torch.backends.cuda.matmul.fp32_precision = switch
            assert asked_for(batch) == precision
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


def test_wrong_use_is_refused_in_words(batch):
    model = GCN(11, 8, 3, 1, backend="fused", strategy="layer")
    with pytest.raises(UserError, match="auto or tile"):
        model(batch)


def test_a_layer_can_be_called_by_itself(batch):
    layers = [GCN(11, 8, 3, 1, backend=backend).double().convs[0] for backend in ("fused", "pyg")]
    layers[1].load_state_dict(layers[0].state_dict())
    fused, pyg = (layer(batch.x.double(), batch.edge_index) for layer in layers)
    torch.testing.assert_close(fused, pyg, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_a_machine_without_extension_and_gpu():
    """In a process with neither, fused is refused and auto takes pyg, whose modules are as they are wherever they are first needed."""
    program = """if True:
        import sys
        import torch
        sys.modules["molgcn._cpu"] = None
        from molgcn.errors import UserError
        from molgcn.nn import GCN
        from molgcn.nn.backend import resolve_backend
        with torch.device("meta"):
            print(resolve_backend("auto").name)
        from torch_geometric.datasets.qm9 import conversion
        print(conversion.device)
        for options in ({"backend": "fused"}, {"strategy": "tile"}):
            try:
                GCN(11, 8, 3, 1, **options)
            except UserError as error:
                print(error)
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    chosen, device, no_extension, strategy = subprocess.check_output(
        [sys.executable, "-c", program], text=True, env=environment
    ).splitlines()
    assert chosen == "pyg"
    assert device == "cpu"
    assert "pip install -e ." in no_extension
    assert "backend.strategy=tile belongs to backend=fused" in strategy


def test_auto_is_fused():
    assert GCN(11, 8, 3, 1).backend.name == "fused"


@pytest.mark.slow
def test_peak_memory_is_a_quarter_of_pygs(molecules, tmp_path):
    """The benchmark measures each backend in its own process, with B = 4,096, L = 28 and H = 32."""
    molecules.save(tmp_path / "molecules")
    growth = {}
    for name in ("fused", "pyg"):
        command = [sys.executable, str(MEMORY_BENCHMARK), "--packed", str(tmp_path / "molecules"), "--one", name, "32", "28", "None"]
        growth[name] = float(subprocess.check_output(command, text=True))
    assert 1 < growth["fused"] < growth["pyg"] / 4, growth


@pytest.mark.slow
def test_validation_error_within_the_spread_of_seeds():
    """On the built-in molecules in float32 the backends end nearer to each other than five seeds do."""
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
    assert pyg.mean() < 0.5  # less than half a standard deviation: it has learnt
