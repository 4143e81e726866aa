import pytest
import torch

from molgcn.benchmark import weights
from molgcn.benchmark.weights import ROUNDING, error, exact, steady_model
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn import GCN


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    return PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "CC(C)N", "C#N"], num_workers=1).batch(slice(None))


@pytest.mark.parametrize("norm", [None, "layer", "batch"])
def test_exact_is_the_model_in_float64(batch, norm):
    torch.manual_seed(0)
    model = GCN(batch.x.shape[1], 8, 3, 1, backend="pyg", norm=norm)
    outputs, gradients = exact(model, batch)
    mine = model(batch)
    mine.sum().backward()
    assert outputs.dtype == torch.double and error(mine, outputs) < 1e-6
    parameters = dict(model.named_parameters())
    assert set(parameters) - set(gradients) == ({"convs.0.bias", "convs.1.bias"} if norm == "batch" else set())
    assert all(error(parameters[name].grad, gradient) < 1e-5 for name, gradient in gradients.items())
    moved, _ = exact(model, batch, ROUNDING)
    assert 0 < error(moved, outputs) < 10 * ROUNDING


def test_weights_that_put_an_activation_onto_zero_are_passed_over(batch, monkeypatch):
    tried = []

    class OnTheEdge(GCN):
        """With seed 0 what an atom's element and its number add to the first layer cancel, but for a rounding."""

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            tried.append(torch.initial_seed())
            if tried[-1] == 0:
                with torch.no_grad():
                    first = self.convs[0].lin.weight
                    first.zero_()
                    first[:, :5] = -torch.tensor([1.0, 6.0, 7.0, 8.0, 9.0]) / 7.0
                    first[:, 5] = 1.0 / 7.0

    monkeypatch.setattr(weights, "GCN", OnTheEdge)
    steady_model(batch.x.shape[1], 8, 2, None, batch)
    assert tried[:2] == [0, 1]
