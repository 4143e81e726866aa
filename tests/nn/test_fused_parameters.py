"""backend=fused reads the parameters of the layers without calling them, and refuses layers that this would change."""

import pytest
import torch
from compiler import needs_extension
from fused_cases import as_dtype, molecules_with_targets, pair, relative
from torch.nn.utils import prune

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN
from molgcn.nn.norms import BatchNorm

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    return molecules_with_targets().batch(slice(None))


def test_batch_norm_of_one_atom_is_refused():
    single = PackedMolecules.from_smiles(["[He]"], features="general", num_workers=0).batch([0])
    model = GCN(single.x.shape[1], 8, 2, 1, backend="fused", norm="batch")
    with pytest.raises(ValueError, match="more than 1 value"):
        model(single)


def test_batch_norm_in_another_mode_is_refused(batch):
    model = GCN(11, 8, 3, 1, backend="fused", norm="batch")
    model.norms[0].eval()
    with pytest.raises(UserError, match="train\\(\\) or eval\\(\\)"):
        model(batch)


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
    """Computed weights are current, also after their parameters have changed."""
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
        lambda model: model.norms.__setitem__(0, BatchNorm(32, affine=False)),
        lambda model: model.norms.__setitem__(0, BatchNorm(32, track_running_stats=False)),
        lambda model: setattr(model.convs[1], "bias", None),
    ],
    ids=["eps", "momentum", "no weights", "no running statistics", "no bias"],
)
def test_norms_of_several_kinds_are_refused(batch, change):
    model, _ = pair(torch.float32, norm="batch")
    model(batch)
    change(model)
    with pytest.raises(UserError, match=r"all norms the same eps and momentum\. Use backend=pyg"):
        model(batch)


@pytest.mark.parametrize("options", [{}, {"norm": "batch", "embed": True}, {"norm": "layer", "head_layers": 2, "init": "kaiming"}], ids=str)
def test_one_seed_one_set_of_weights(options):
    fused, pyg = pair(**options)
    assert list(fused.state_dict()) == list(pyg.state_dict())
    assert all(torch.equal(left, right) for left, right in zip(fused.state_dict().values(), pyg.state_dict().values(), strict=True))
    fused.load_state_dict(pyg.state_dict())
