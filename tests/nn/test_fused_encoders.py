"""Encoders on backend=fused agree with PyTorch's, and leave to PyTorch what the operator cannot do."""

import copy

import pytest
import torch
from compiler import needs_compiler
from encode_cases import encode_emulated
from layer_network_cases import worst_difference
from network_cases import batch_of, network
from test_molecule_net import padded
from torch.utils._python_dispatch import TorchDispatchMode

from molgcn.data import GraphBatch
from molgcn.nn import MoleculeNet, forward, fused_encoders
from molgcn.ops import encode
from molgcn.ops.layer_network import implementation_cuda
from molgcn.ops.layer_network.implementation import DIRECT, Direct
from molgcn.ops.layer_network.planned import plan_count

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = {
    "features and walks": ("gine", {"embed": True, "rwse": 4, "rwse_dim": 5, "embed_bonds": True, "bond_rw": 4}),
    "features": ("gine", {"embed": True, "embed_bonds": True}),
    "walks alone": ("gine", {"rwse": 4, "rwse_dim": 5}),  # which PyTorch encodes
}
DEVICES = [pytest.param("emulated", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Yield the device to test on: a GPU, or the CPU with the operator emulated."""
    if request.param == "cuda":
        yield "cuda"
        return
    monkeypatch.setattr(fused_encoders, "fits", lambda inputs: inputs.x.dtype == torch.float32)
    with encode_emulated():
        yield "cpu"


class Encodings(TorchDispatchMode):
    """Counts calls of the operator."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.molgcn.encode.default
        return function(*args, **(kwargs or {}))


def batch_on(device: str) -> GraphBatch:
    """Return a padded batch in float32."""
    batch = padded(GraphBatch.from_pyg(batch_of("many")), 3, 5, 2)
    moved = batch.to(device)
    moved.counts = batch.counts.to(device)
    for name in ("x", "edge_attr", "rwse", "bond_rw"):
        setattr(moved, name, getattr(batch, name).to(device, torch.float32))
    return moved


def model_on(case: str, device: str) -> MoleculeNet:
    conv, options = CASES[case]
    model = network(conv, options).float().to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def atom_states(model: MoleculeNet, x: torch.Tensor, rwse: torch.Tensor, count: torch.Tensor | None) -> torch.Tensor:
    """Return the first states of the atoms, computed as backend=fused does."""
    inputs = fused_encoders.atom_encoder(model, x, rwse, count)
    if inputs is None:
        return forward.atom_states(model, x, rwse, count)
    encoded = encode(inputs)
    fused_encoders.take_atom_statistics(model, inputs, encoded.statistics)
    return encoded.states


def outcome(module, model: MoleculeNet, batch: GraphBatch) -> dict[str, torch.Tensor]:
    """Return the real rows of the states, all gradients and all buffers, after a step."""
    states = forward.atom_states if module is forward else atom_states
    atoms = states(model, batch.x, batch.rwse, batch.counts[1])[: batch.counts[1]]
    inputs = fused_encoders.bond_encoder(model, batch.edge_attr, batch.bond_rw, batch.counts[2]) if module is fused_encoders else None
    bonds = forward.bond_states(model, batch.edge_attr, batch.bond_rw, batch.x) if inputs is None else encode(inputs).states
    bonds = bonds[: batch.counts[2]]
    model.zero_grad()
    (atoms.square().sum() + bonds.square().sum()).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"atoms": atoms, "bonds": bonds, **gradients, **dict(model.named_buffers())}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", ["features and walks", "walks alone", pytest.param("features", marks=pytest.mark.slow)])
def test_states_gradients_and_statistics_are_pytorch_s(case, training, device):
    model, batch = model_on(case, device).train(training), batch_on(device)
    other = copy.deepcopy(model)
    with Encodings() as encodings:
        actual = outcome(fused_encoders, model, batch)
    assert encodings.count == (0 if case == "walks alone" else 2)
    torch.testing.assert_close(actual, outcome(forward, other, batch), rtol=2e-5, atol=2e-5)


def test_pytorch_computes_what_the_operator_cannot(device):
    """Hooks are called, features that want a gradient get it, and a single atom is refused as PyTorch does."""
    model, batch, called = model_on("features and walks", device), batch_on(device), []
    with Encodings() as encodings:
        states = atom_states(model, batch.x.clone().requires_grad_(), batch.rwse, batch.counts[1])
        assert states.grad_fn is not None
        model.embed.register_forward_hook(lambda *_: called.append("embed"))
        model.rwse_encoder.lin.register_forward_hook(lambda *_: called.append("lin"))
        atom_states(model, batch.x, batch.rwse, batch.counts[1])
        atom_states(model.double(), batch.x.double(), batch.rwse.double(), batch.counts[1])
        assert called == ["embed", "lin"] * 2
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            atom_states(model.float(), batch.x[:1], batch.rwse[:1], None)
    assert encodings.count == 0


def test_other_modules_in_place_of_the_network_s_are_called(device):
    model, batch = model_on("features and walks", device), batch_on(device)
    model.rwse_encoder.norm = torch.nn.Identity()
    with Encodings() as encodings:
        atom_states(model, batch.x, batch.rwse, batch.counts[1])
    assert encodings.count == 0


def step(model: MoleculeNet, batch: GraphBatch) -> dict[str, torch.Tensor]:
    """Return the predictions, all gradients and all buffers after a step of a padded batch."""
    predictions = model(batch)[: batch.counts[0]]
    model.zero_grad()
    predictions.sin().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"predictions": predictions.detach(), **gradients, **dict(model.named_buffers())}


@pytest.mark.parametrize("frozen", ["", "rwse_encoder", "bond_embed"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("case", "head_layers"), [("features and walks", 2), ("features", 0)])
def test_plans_take_encoders_and_head(case, head_layers, training, frozen, device, monkeypatch):
    if device == "cpu":
        monkeypatch.setitem(DIRECT, "cpu", Direct(implementation_cuda.implementation_of, takes_end=True))
    conv, options = CASES[case]
    model, batch = (
        network(conv, {**options, "norm": "batch", "head_layers": head_layers}, "fused").float().to(device).train(training),
        batch_on(device),
    )
    exact = copy.deepcopy(model).double().on_backend("reference")
    for changed in (model, exact):
        part = getattr(changed, frozen or "head")
        if part is not None:
            part.requires_grad_(False)
    _, before = plan_count()
    actual, expected = step(model, batch), step(exact, batch.double())
    assert plan_count()[1] > before
    assert worst_difference(actual, expected) < (1e-4,)
    assert type(model(batch).grad_fn).__name__ == "_NetworkBackward"  # all of the model is one node


@pytest.mark.gpu
def test_a_network_s_step_has_two_encodings():
    model, batch = network("gine", CASES["features and walks"][1], "fused").float().cuda(), batch_on("cuda")
    with Encodings() as encodings:
        model(batch).sum().backward()
    assert encodings.count == 2
