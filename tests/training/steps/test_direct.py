"""A direct step on the CPU gives the weights, progress, log and checkpoints of the plain step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from compiler import needs_extension
from test_captured import assert_same_progress, count_steps
from torch import nn
from torch.optim import SGD, Adam, AdamW

from molgcn.config.run import Config
from molgcn.nn import GCN
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.steps.direct import FusedUpdate, _has_its_own_weights
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
    "transformed": {
        "dataset": {"targets": ["logp", "mr"], "transforms": {"logp": "quantile_normal", "mr": "log10"}},
        "model": {"norm": "batch", "head_layers": 2},
        "training": {"loss": "huber"},
    },
    "descriptors": {"dataset": {"descriptors": ["tpsa"]}, "model": {"norm": "batch", "embed": True, "head_layers": 1}},
}
PLAIN: dict[str, tuple[dict[str, Any], str]] = {  # with what is said of each
    "accumulated": ({"training": {"accumulate_batches": 2}}, "training.accumulate_batches"),
    "profiled": ({"trainer": {"profiler": "simple"}}, "trainer.profiler"),
    "bf16": ({"trainer": {"precision": "bf16-mixed"}}, "trainer.precision=32-true"),
    "wanted": ({"training": {"captured": False}}, ""),
    "pyg": ({"backend": {"name": "pyg"}}, "backend=fused"),
}


@pytest.fixture
def direct_steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list of whether each step was taken directly."""
    from molgcn.training.steps.direct import DirectStep  # this import needs the extension

    return count_steps(monkeypatch, DirectStep)


def fused(small_config: Callable[..., Any], changes: dict[str, Any], **training: Any) -> Any:
    return small_config(**{"backend": {"name": "fused"}, **changes, "training": {**changes.get("training", {}), **training}})


@pytest.mark.parametrize("variant", DIRECT)
def test_direct_and_plain_steps_are_bit_for_bit_the_same(variant, tmp_path, small_config, direct_steps):
    assert_same_steps(fused(small_config, DIRECT[variant], captured=False), fused(small_config, DIRECT[variant]), tmp_path, direct_steps)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("classification", {}),
        ("classification", {"loss": "focal", "class_weights": "balanced", "gradient_clip_norm": 0.1}),
        ("multiclass", {}),
    ],
    ids=["bce", "focal", "ce"],
)
def test_direct_steps_take_losses_without_an_operator(task, options, tmp_path, small_config, direct_steps):
    smiles = ["C" * length + end for length in range(1, 21) for end in ("", "O", "N", "F")]
    rows = [
        f"{text},{place % 3 % (2 if task == 'classification' else 3)},{'' if place % 5 else place % 2}" for place, text in enumerate(smiles)
    ]
    (tmp_path / "labels.csv").write_text("\n".join(["smiles,y,z", *rows]))
    changes = {
        "task": task,
        "dataset": {
            "name": "csv",
            "path": str(tmp_path / "labels.csv"),
            "smiles": "smiles",
            "targets": ["y", "z"],
            "subset": None,
            "batch_size": 8,
        },
        "model": {"norm": "batch", "head_layers": 2},
        "training": options,
    }
    assert_same_steps(fused(small_config, changes, captured=False), fused(small_config, changes), tmp_path, direct_steps)


def assert_same_steps(plain: Config, direct: Config, tmp_path: Path, direct_steps: list[bool]) -> None:
    train(plain, tmp_path / "plain")
    assert direct_steps == []
    train(direct, tmp_path / "direct")
    assert direct_steps == [False] + [True] * (len(direct_steps) - 1) and len(direct_steps) > 10
    assert_same_progress(tmp_path / "direct", tmp_path / "plain")
    mine, theirs = (load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")["optimizer_states"] for name in ("direct", "plain"))
    assert str(mine) == str(theirs)


@pytest.mark.parametrize("variant", PLAIN)
def test_what_a_direct_step_does_not_do_is_done_plainly(variant, tmp_path, small_config, direct_steps, caplog):
    changes, reason = PLAIN[variant]
    with caplog.at_level(logging.DEBUG, "molgcn.training.steps"):
        train(fused(small_config, {**changes, "trainer": {"max_epochs": 1, **changes.get("trainer", {})}}), tmp_path)
    assert direct_steps == []
    assert ("not direct" in caplog.text) == bool(reason) and reason in caplog.text


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


def test_optimisers_in_another_form():
    parameter = torch.zeros(2, requires_grad=True)
    assert all(FusedUpdate.why_not(kind([parameter], lr=0.1, fused=True)) is None for kind in (Adam, AdamW, SGD))
    for options in ({"amsgrad": True, "fused": True}, {"fused": False}, {"decoupled_weight_decay": True, "fused": True}):
        assert "optimiser" in (FusedUpdate.why_not(Adam([parameter], lr=0.1, **options)) or "")
