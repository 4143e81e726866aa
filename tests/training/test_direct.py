"""A direct step on the CPU is the plain step: same weights, same progress, same log, same checkpoints."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from compiler import needs_extension
from lightning import Callback
from lightning.pytorch.callbacks import LambdaCallback
from test_captured import assert_same_progress, count_steps
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW

from molgcn.config import TrainingConfig
from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn.training.checkpoint import load_checkpoint
from molgcn.training.direct import _has_its_own_weights
from molgcn.training.fused_update import FusedUpdate
from molgcn.training.losses import MaskedLoss
from molgcn.training.regressor import MoleculeRegressor
from molgcn.training.train import train

pytestmark = needs_extension

DIRECT: dict[str, dict[str, Any]] = {
    "batch_norm": {
        "model": {"norm": "batch", "residual": True, "last_activation": True, "head_layers": 2, "dropout": 0.2},
        "scheduler": {"name": "onecycle"},
    },
    "clipped": {
        "model": {"norm": "layer", "embed": True, "head_layers": 1},
        "training": {"ema_decay": 0.9, "gradient_clip_norm": 0.05, "loss": "huber"},
        "optimizer": {"name": "adamw", "weight_decay": 0.1},
    },
    "sgd": {
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True},
        "model": {"pool": "max"},
        "loader": {"name": "pyg"},
    },
    "sgd_plain": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.0, "nesterov": False}, "trainer": {"val_check_interval": 3}},
    "max_steps": {"trainer": {"max_steps": 17, "max_epochs": -1}},
}
PLAIN: dict[str, dict[str, Any]] = {
    "accumulated": {"training": {"accumulate_batches": 2}},
    "profiled": {"trainer": {"profiler": "simple"}},
    "bf16": {"trainer": {"precision": "bf16-mixed"}},
    "wanted": {"training": {"captured": False}},
    "pyg": {"backend": {"name": "pyg"}},
}


@pytest.fixture
def direct_steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step was taken directly."""
    from molgcn.training.direct import DirectStep  # needs the extension

    return count_steps(monkeypatch, DirectStep)


def fused(small_config: Callable[..., Any], changes: dict[str, Any], **training: Any) -> Any:
    return small_config(**{"backend": {"name": "fused"}, **changes, "training": {**changes.get("training", {}), **training}})


@pytest.mark.parametrize("variant", DIRECT)
def test_direct_and_plain_steps_are_bit_for_bit_the_same(variant, tmp_path, small_config, direct_steps):
    train(fused(small_config, DIRECT[variant], captured=False), tmp_path / "plain")
    assert direct_steps == []
    train(fused(small_config, DIRECT[variant]), tmp_path / "direct")
    assert direct_steps == [False] + [True] * (len(direct_steps) - 1) and len(direct_steps) > 10
    assert_same_progress(tmp_path / "direct", tmp_path / "plain")
    mine, theirs = (load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")["optimizer_states"] for name in ("direct", "plain"))
    assert str(mine) == str(theirs)


@pytest.mark.parametrize("variant", PLAIN)
def test_what_a_direct_step_does_not_do_is_done_plainly(variant, tmp_path, small_config, direct_steps):
    changes = PLAIN[variant]
    train(fused(small_config, {**changes, "trainer": {"max_epochs": 1, **changes.get("trainer", {})}}), tmp_path)
    assert direct_steps == []


class Listener(Callback):
    """Counts what it hears within steps."""

    heard = 0

    def on_before_optimizer_step(self, *args: Any) -> None:
        self.heard += 1


def test_callbacks_within_a_step_are_called(tmp_path, small_config, direct_steps):
    listener, heard = Listener(), []
    train(fused(small_config, {"trainer": {"max_epochs": 1}}), tmp_path / "class", [listener])
    train(
        fused(small_config, {"trainer": {"max_epochs": 1}}),
        tmp_path / "instance",
        [LambdaCallback(on_after_backward=lambda *_: heard.append(0))],
    )
    assert direct_steps == [] and listener.heard == len(heard) > 5


def test_hooks_are_heard(tmp_path, small_config, direct_steps, monkeypatch):
    heard = []
    start = MoleculeRegressor.on_train_start

    def hooked(self: MoleculeRegressor) -> None:
        start(self)
        self.model.convs[0].bias.register_hook(heard.append)

    monkeypatch.setattr(MoleculeRegressor, "on_train_start", hooked)
    train(fused(small_config, {"trainer": {"max_epochs": 1}}), tmp_path)
    assert not any(direct_steps) and len(heard) > 5


class Freeze(Callback):
    """Freezes a layer in the second epoch and lets it go in the third; keeps its weights at the ends of epochs."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.model.convs[0].lin.weight.requires_grad_(trainer.current_epoch != 1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.weights.append(pl_module.model.convs[0].lin.weight.detach().clone())


def test_what_is_frozen_stands_still(tmp_path, small_config, direct_steps):
    runs = []
    for captured in (False, "auto"):
        runs.append(Freeze())
        train(fused(small_config, {"trainer": {"max_epochs": 3}}, captured=captured), tmp_path / str(captured), [runs[-1]])
    assert any(direct_steps) and not all(direct_steps[1:])
    for one, other in zip(runs[0].weights, runs[1].weights, strict=True):
        assert torch.equal(one, other)
    first, second, third = runs[1].weights
    assert torch.equal(first, second) and not torch.equal(second, third)


class Listen(Callback):
    """Counts the passes through the network and its head from the second epoch on."""

    heard = 0

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            for part in (pl_module.model, pl_module.model.head):
                part.register_forward_hook(self.count)

    def count(self, module: Any, *_: Any) -> None:
        self.heard += module.training


def test_hooks_of_modules_are_heard(tmp_path, small_config, direct_steps):
    counts = []
    for captured in (False, "auto"):
        listener = Listen()
        train(fused(small_config, {"trainer": {"max_epochs": 2}}, captured=captured), tmp_path / str(captured), [listener])
        counts.append(listener.heard)
    assert any(direct_steps)
    assert counts[0] == counts[1] > 5


def load_fresh_state(trainer: Any, module: Any) -> None:
    state = copy.deepcopy(trainer.optimizers[0].state_dict())
    for moments in state["state"].values():
        moments["exp_avg"].zero_()
    trainer.optimizers[0].load_state_dict(state)


def set_momentum(trainer: Any, module: Any) -> None:
    for norm in module.model.norms:
        norm.momentum = 0.9


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "optimizer state": load_fresh_state,
    "optimizer hook": lambda trainer, module: trainer.optimizers[0].register_step_post_hook(lambda *_: None),
    "pool": lambda trainer, module: setattr(module.model, "pool", "sum"),
    "momentum": set_momentum,
    "loss": lambda trainer, module: setattr(module.loss, "options", ("mse", 1.0)),
    "target_mean": lambda trainer, module: setattr(module, "target_mean", module.target_mean + 5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_within_a_run_are_taken(name, tmp_path, small_config, direct_steps):
    ends = []
    for captured in (False, "auto"):
        change = LambdaCallback(on_train_epoch_start=lambda trainer, module: trainer.current_epoch == 1 and CHANGES[name](trainer, module))
        keep = LambdaCallback(on_train_end=lambda trainer, module: ends.append(copy.deepcopy(module.model.state_dict())))
        config = fused(small_config, {"trainer": {"max_epochs": 2}, "model": {"norm": "batch"}}, captured=captured)
        train(config, tmp_path / str(captured), [change, keep])
    assert any(direct_steps)
    for one, other in zip(*(end.values() for end in ends), strict=True):
        assert torch.equal(one, other)


class Copy(Callback):
    """Copies and saves the module at the end of an epoch."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        assert pl_module.captured is not None
        self.copy = copy.deepcopy(pl_module)
        torch.save(pl_module, io.BytesIO())


def test_a_module_can_be_copied_within_a_run(tmp_path, small_config, direct_steps):
    copies = Copy()
    train(fused(small_config, {"trainer": {"max_epochs": 1}}), tmp_path, [copies])
    assert any(direct_steps)
    assert copies.copy.captured is None


class Prune(Callback):
    """Prunes a layer after the first epoch, as Lightning's ModelPruning does; keeps its weights at the ends of epochs."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            nn.utils.prune.l1_unstructured(pl_module.model.convs[1].lin, "weight", 0.5)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        layer = pl_module.model.convs[1].lin
        self.weights.append((layer.weight_orig * layer.weight_mask if nn.utils.prune.is_pruned(layer) else layer.weight).detach().clone())


def test_what_is_pruned_stays_pruned(tmp_path, small_config, direct_steps):
    runs = []
    for captured in (False, "auto"):
        runs.append(Prune())
        train(fused(small_config, {"trainer": {"max_epochs": 2}}, captured=captured), tmp_path / str(captured), [runs[-1]])
    assert any(direct_steps)
    for one, other in zip(runs[0].weights, runs[1].weights, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("options", [{}, {"norm": "batch", "embed": True, "head_layers": 2}, {"norm": "layer"}], ids=str)
def test_weights_of_which_others_are_made_or_shared(options):
    def model() -> GCN:
        return GCN(6, 8, 4, 2, backend="fused", **options)

    assert _has_its_own_weights(model())
    tied, pruned, parametrized = model(), model(), model()
    tied.convs[1].lin.weight = tied.convs[2].lin.weight
    nn.utils.prune.l1_unstructured(pruned.convs[1].lin, "weight", 0.5)
    nn.utils.parametrizations.weight_norm(parametrized.convs[1].lin)
    assert not any(map(_has_its_own_weights, (tied, pruned, parametrized)))


class Replace(Callback):
    """Puts the weights elsewhere at the start of an epoch, as scripts do that average or perturb them."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        parameters = list(pl_module.model.parameters())
        nn.utils.vector_to_parameters(0.5 * nn.utils.parameters_to_vector(parameters), parameters)
        for buffer in pl_module.model.buffers():
            buffer.data = buffer.data.clone()


def test_weights_may_be_replaced(tmp_path, small_config, direct_steps):
    changes = {"model": {"norm": "batch"}, "trainer": {"max_epochs": 3}}
    for name, captured in (("plain", False), ("direct", "auto")):
        train(fused(small_config, changes, captured=captured), tmp_path / name, [Replace()])
    assert all(direct_steps[1:]) and len(direct_steps) > 10
    assert_same_progress(tmp_path / "direct", tmp_path / "plain")


class Subclass(MoleculeRegressor):
    """Has a hook of its own."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.heard = getattr(self, "heard", 0) + 1


def test_a_module_of_ones_own_and_one_that_is_copied(tmp_path, small_config, direct_steps, monkeypatch):
    modules = []
    for base in (MoleculeRegressor, Subclass):
        monkeypatch.setattr("molgcn.training.train.MoleculeRegressor", base)
        train(fused(small_config, {"trainer": {"max_epochs": 1}}), tmp_path / base.__name__, [keeper := Keeper()])
        modules.append(keeper.module)
    assert any(direct_steps) and modules[1].heard > 5
    copy.deepcopy(modules[0].model)
    assert modules[0].captured is None


class Keeper(Callback):
    """Keeps the module."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.module = pl_module


def test_heads_of_other_kinds():
    """The loss of a head that is no chain of linear maps and relu is that of its prediction."""
    torch.manual_seed(0)
    batch = PackedMolecules.from_smiles(["CCO", "CCN"], num_workers=0).batch([0, 1])
    target, mean, std = torch.randn(2, 1), torch.zeros(1), torch.ones(1)
    loss = MaskedLoss(TrainingConfig(loss="mse"), fused=True)
    model = GCN(11, 8, 2, 1, backend="fused")
    heads = [nn.Linear(8, 1), nn.Linear(8, 1, bias=False), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))]
    hooked = nn.Linear(8, 1)
    hooked.register_forward_hook(lambda module, inputs, output: 2 * output)
    for head in (*heads, hooked, nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))):
        model.head = head
        expected = F.mse_loss(model(batch), target)
        torch.testing.assert_close(loss.of_model(model, batch, target, mean, std)[0], expected, rtol=1e-6, atol=1e-6)


def test_optimisers_in_another_form():
    parameter = torch.zeros(2, requires_grad=True)
    assert all(FusedUpdate.applies(kind([parameter], lr=0.1, fused=True)) for kind in (Adam, AdamW, SGD))
    for options in ({"amsgrad": True, "fused": True}, {"fused": False}, {"decoupled_weight_decay": True, "fused": True}):
        assert not FusedUpdate.applies(Adam([parameter], lr=0.1, **options))
