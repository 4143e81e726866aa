import numpy as np
import pytest
import torch
from compiler import needs_extension
from fused_cases import SMILES, relative

from molgcn.data import PackedMolecules
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.encoders import Descriptors
from molgcn.ops import Objective


def scaled(values):
    module = Descriptors(values.shape[1])
    module.fit(values)
    return module


def test_they_are_standardised_and_constant_ones_centred():
    values = np.array([[1e6, 7, 1], [1e6 + 2, 7, 3], [1e6 + 4, 7, 5]], np.float32)
    module = scaled(values).double()
    out = module(torch.zeros(3, 2, dtype=torch.double), torch.tensor(values).double())
    np.testing.assert_allclose(out[:, 2:], np.array([[-1, 0, -1], [0, 0, 0], [1, 0, 1]]) * 1.5**0.5, rtol=1e-6)
    assert module(torch.zeros(1, 2), torch.tensor([[1e6, 9, 1]]))[0, 3] == 2  # the column was constant in training


def test_a_limit_holds_for_what_is_far_from_training():
    """All descriptors of a molecule are scaled alike."""
    module = Descriptors(2, limit=2.0)
    module.fit(np.array([[0, 0], [1, 1]], np.float32))
    out = module(torch.zeros(4, 0), torch.tensor([[0.5, 0.5], [0.0, 1.0], [4.5, 2.5], [0.5, -49.5]]))
    assert out.tolist() == [[0, 0], [-1, 1], [2, 1], [0, -2]]


def test_a_limit_is_above_0():
    with pytest.raises(UserError, match=r"model\.descriptor_limit=0"):
        MoleculeNet(11, 16, 3, 2, conv="gcn", descriptor_limit=0)


@pytest.mark.parametrize("value", [0.1, 1e-30, 123456.789, 3e38])
def test_a_constant_has_no_deviation_however_it_rounds(value):
    assert scaled(np.full((997, 1), value, np.float32)).std.tolist() == [1]


def described(count=5):
    torch.manual_seed(0)
    molecules = PackedMolecules.from_smiles(SMILES, targets=torch.randn(len(SMILES), 2).numpy(), num_workers=0)
    return with_descriptors(molecules, np.random.default_rng(0).normal(300, 20, (len(molecules), count)))


def network(backend, descriptors, **options):
    torch.manual_seed(0)
    model = MoleculeNet(11, 16, 3, 2, conv="gcn", backend=backend, descriptor_channels=descriptors.shape[1], **options).double()
    model.descriptors.fit(descriptors)
    return model


@needs_extension
@pytest.mark.parametrize(
    "options", [{}, {"norm": "batch", "head_layers": 2}, {"pool": "sum", "embed": True, "descriptor_limit": 0.5}], ids=str
)
def test_all_backends_agree_in_float64(options):
    """Predictions, losses and all gradients agree to 1e-10."""
    molecules = described()
    batch, found = molecules.batch(slice(None)).double(), []
    objective = Objective(batch.targets, torch.zeros(2).double(), torch.ones(2).double(), "mse")
    for backend in ("fused", "pyg", "reference"):
        model = network(backend, molecules.descriptors, **options)
        value, _ = model.loss(batch, objective)
        value.backward()
        found.append([model.eval()(batch), value, *(parameter.grad for parameter in model.parameters())])
    for others in found[1:]:
        assert max(relative(one, other, 1e-3) for one, other in zip(found[0], others, strict=True)) < 1e-10
    without = batch.double()
    without.descriptors = without.descriptors + 1
    assert not torch.allclose(model(without), model(batch))


@needs_extension
@pytest.mark.parametrize("backend", ["fused", "pyg", "reference"])
def test_pygs_batches_give_the_same(backend):
    molecules = described()
    model = network(backend, molecules.descriptors).eval()
    batch = molecules.batch([3, 1, 2]).double()
    torch.testing.assert_close(model(batch.to_pyg()), model(batch), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", [pytest.param("fused", marks=needs_extension), "pyg"])
def test_a_batch_without_or_with_others_is_refused(backend):
    molecules = described()
    model = network(backend, molecules.descriptors)
    with pytest.raises(UserError, match="reads 5 `descriptors` per molecule, which the batch does not have"):
        model(PackedMolecules.from_smiles(SMILES, num_workers=0).batch([0, 1]).double())
    with pytest.raises(UserError, match="has 3 `descriptors` per molecule, but the network was made for 5"):
        model(described(3).batch([0, 1]).double())


def test_the_copy_on_another_backend_has_the_scale():
    molecules = described()
    model = network("reference", molecules.descriptors).eval()
    batch = molecules.batch([0, 1, 2]).double()
    torch.testing.assert_close(model.on_backend("pyg")(batch), model(batch), rtol=1e-12, atol=1e-12)
    assert "descriptors.mean" in model.state_dict() and "descriptor_channels=5" in repr(model)
