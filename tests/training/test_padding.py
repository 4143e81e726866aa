"""A padded batch (full shape, empty places at its end) gives the loss, metrics and batch statistics of the batch itself."""

from __future__ import annotations

import pytest
import torch

from molgcn.config.training import TrainingConfig
from molgcn.data import PackedMolecules
from molgcn.data.loader import PackedLoader
from molgcn.metrics import errors_of
from molgcn.nn import GCN
from molgcn.tasks.losses import MaskedLoss

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def molecules() -> PackedMolecules:
    smiles = [text for n in range(1, 12) for text in (f"{'C' * n}O", f"N{'C' * n}", f"C1CC1{'C' * n}F")]
    targets = torch.randn(len(smiles), 2, generator=torch.Generator().manual_seed(0)).numpy()
    targets[::5, 1] = float("nan")
    return PackedMolecules.from_smiles(smiles, targets, features="qm9")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("norm", "pool"), [(None, "mean"), ("batch", "mean"), ("batch", "sum"), ("layer", "max")])
def test_empty_places_weigh_nothing(device, norm, pool, molecules):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(GCN(11, 16, 3, 2, backend="fused", norm=norm, pool=pool, residual=True, last_activation=True).to(device))
    loss, results = MaskedLoss(TrainingConfig(loss="mse"), fused=True), []
    mean, std = torch.zeros(2, device=device), torch.ones(2, device=device)
    loader = PackedLoader(molecules, 10, shuffle=True, seed=3, device=device)
    sizes = []
    for batch in loader:
        sizes.append(batch.num_graphs)
        results.clear()
        for model, form in zip(models, (batch, batch.padded), strict=True):
            model.zero_grad()
            prediction = model(form)
            value, (total, count) = loss(prediction, form.targets, mean, std)
            value.backward()
            errors = errors_of(prediction.detach(), form.targets)
            results.append((total.item(), int(count), errors, [p.grad.clone() for p in model.parameters()]))
        assert batch.padded.num_graphs == 10
        assert torch.isnan(batch.padded.targets[batch.num_graphs :]).all()
        (total, count, metric, gradients), (padded_total, padded_count, padded_metric, padded_gradients) = results
        assert count == padded_count
        assert padded_total == pytest.approx(total, rel=1e-6)
        for key in metric:
            assert padded_metric[key] == pytest.approx(metric[key], rel=1e-5, nan_ok=True)
        names = [name for name, _ in models[0].named_parameters()]
        exact = dict(zip(names, gradients, strict=True))
        for name, mine in zip(names, padded_gradients, strict=True):  # the loss adds the same terms in another order
            scale = exact[name]
            if norm == "batch" and name.startswith("convs") and name.endswith("bias"):
                scale = exact[name.replace("bias", "lin.weight")]  # a bias before batch norm has nothing but rounding for a gradient
            assert (mine - exact[name]).norm() <= (3e-6 if device == "cpu" else 1e-5) * scale.norm(), name
    assert sizes == [10, 10, 10, 3]
    for (name, mine), theirs in zip(models[1].state_dict().items(), models[0].state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7, msg=name)
