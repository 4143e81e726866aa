"""A direct step on the CPU is the plain step: same weights, same progress, same log, same checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compiler import needs_extension
from lightning import Callback
from test_captured import assert_same_progress

from molgcn.training.checkpoint import load_checkpoint
from molgcn.training.direct import DirectStep
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
    """A list that grows by one with every step asked for: whether it was taken directly."""
    steps: list[bool] = []
    call = DirectStep.__call__

    def counted(self: DirectStep, *args: Any) -> bool:
        steps.append(call(self, *args))
        return steps[-1]

    monkeypatch.setattr(DirectStep, "__call__", counted)
    return steps


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
    listener = Listener()
    train(fused(small_config, {"trainer": {"max_epochs": 1}}), tmp_path, [listener])
    assert direct_steps == [] and listener.heard > 5


def test_hooks_are_heard(tmp_path, small_config, direct_steps, monkeypatch):
    heard = []
    start = MoleculeRegressor.on_train_start

    def hooked(self: MoleculeRegressor) -> None:
        start(self)
        self.model.convs[0].bias.register_hook(heard.append)

    monkeypatch.setattr(MoleculeRegressor, "on_train_start", hooked)
    train(fused(small_config, {"trainer": {"max_epochs": 1}}), tmp_path)
    assert direct_steps == [] and len(heard) > 5
