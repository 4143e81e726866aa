"""A run in which a loss or a weight is not finite names the step at which that began, and leaves good checkpoints only."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from compiler import needs_extension
from lightning import Callback
from run_cases import log_of
from test_captured import on_gpu

from molgcn.config.run import Config
from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.optim import cosine
from molgcn.training.train import train
from molgcn.training.training_loss import TrainingLoss, check_weights

WAYS = [
    "plain",
    pytest.param("direct", marks=needs_extension),
    pytest.param("captured", marks=pytest.mark.gpu),
    pytest.param("plain on a GPU", marks=pytest.mark.gpu),
]
BATCHES, EPOCHS = 8, 3


class Spoil(Callback):
    """A callback that makes the loss of the optimiser step after `steps` NaN, or the weights after this step, in place."""

    def __init__(self, steps: int, what: str) -> None:
        self.steps = steps
        self.what = what

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.steps:
            parameter = pl_module.model.head.bias
            tensor = parameter.data if self.what == "loss" else trainer.optimizers[0].state[parameter]["exp_avg"]
            tensor.fill_(math.nan)


def configured(way: str, small_config: Any, **changes: Any) -> Config:
    changes["trainer"] = {"max_epochs": EPOCHS, **changes.get("trainer", {})}
    if "GPU" in way or way == "captured":
        return on_gpu(small_config, changes, way == "captured")
    return small_config(**changes, backend={"name": "fused" if way == "direct" else "pyg"})


def good_checkpoint(folder: Path, name: str) -> dict[str, Any]:
    checkpoint = load_checkpoint(folder / "checkpoints" / name)
    assert all(tensor.isfinite().all() for tensor in checkpoint["state_dict"].values())
    return checkpoint


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("each", "log_every", "steps", "place"),
    [
        (1, 3, 10, "step 11 (epoch 2, batch 3 of 8)"),
        (3, 0, 5, "step 6 (epoch 2, batch 7 of 8)"),
    ],
)
def test_the_first_bad_step_is_named(way, each, log_every, steps, place, tmp_path, small_config):
    config = configured(way, small_config, training={"accumulate_batches": each}, trainer={"log_every_n_steps": log_every})
    with pytest.raises(UserError) as raised:
        train(config, tmp_path, [Spoil(steps, "loss")])
    rate = 1e-3 * cosine(EPOCHS * math.ceil(BATCHES / each), 0.0)(steps)
    message = str(raised.value)
    assert message.startswith(f"The training loss is not finite in optimiser {place}, taken at a learning rate of {rate:g}")
    assert all(remedy in message for remedy in ("optimizer.lr", "training.gradient_clip_norm", "outliers", "trainer.precision"))
    written = [path for path in (tmp_path / "checkpoints").iterdir() if f"with ckpt_path={path}." in message]
    assert len(written) == 1 and good_checkpoint(tmp_path, written[0].name)
    assert good_checkpoint(tmp_path, "best.ckpt")["epoch"] == 0
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left <= {"config.yaml", "provenance.json", "splits.json", "training_hashes.npy", "metrics.csv", ".lock"}
    assert not any(math.isnan(float(row["train/loss"] or 0)) for row in log_of(tmp_path))


def test_a_single_number_that_is_not_finite_is_found():
    seen = []
    trainer: Any = SimpleNamespace(fit_loop=SimpleNamespace(epoch_loop=None), strategy=None)
    trainer.strategy = SimpleNamespace(reduce_boolean_decision=lambda finite: seen.append(finite) or True)
    for value in (3e38, -3e38, math.nan, math.inf, -math.inf):
        tensors = [torch.zeros(0), torch.arange(3), torch.ones(3, dtype=torch.double), torch.tensor([[-3e38, value], [3e38, 0.0]])]
        check_weights(trainer, SimpleNamespace(train_loss=TrainingLoss()), tensors)  # type: ignore[arg-type]
    assert seen == [True, True, False, False, False]


@pytest.mark.parametrize("way", WAYS)
def test_no_checkpoint_keeps_weights_that_are_not_finite(way, tmp_path, small_config):
    """The losses of all steps so far are finite when these weights are made."""
    config = configured(way, small_config, training={"checkpoint_seconds": 0})
    with pytest.raises(UserError, match=r"The weights are not finite after optimiser step 11 \(epoch 2, batch 3 of 8\).*last\.ckpt"):
        train(config, tmp_path, [Spoil(10, "weights")])
    assert good_checkpoint(tmp_path, "last.ckpt")["global_step"] == 10
    go_on = configured(way, small_config, ckpt_path=str(tmp_path / "checkpoints" / "last.ckpt"), trainer={"max_epochs": 1})
    assert train(go_on, tmp_path / "next").best_loss is not None


@pytest.mark.parametrize(
    ("trainer", "checkpoint"),
    [({"max_steps": 11}, "last"), ({"max_steps": 3}, "no checkpoint yet"), ({"val_check_interval": 1, "log_every_n_steps": 0}, "best")],
)
def test_the_last_step_of_a_run_and_every_validation_are_looked_at(trainer, checkpoint, tmp_path, small_config):
    steps = trainer.get("max_steps", 11) - 1
    with pytest.raises(UserError, match=rf"not finite.*step {steps + 1} .*{checkpoint}"):
        train(small_config(trainer=trainer), tmp_path, [Spoil(steps, "loss" if "val_check_interval" in trainer else "weights")])


@pytest.mark.parametrize("patience", [None, 2])
def test_a_validation_loss_alone_is_not_the_best_and_no_improvement(patience, tmp_path, small_config, caplog):
    molecules = [f"{'C' * (n % 9 + 1)},{n % 9},train" for n in range(40)] + ["CCO,1e30,val", "CCN,1,val", "CO,1,test"]
    (tmp_path / "one.csv").write_text("\n".join(["smiles,y,part", *molecules]))
    source = {"name": "csv", "path": str(tmp_path / "one.csv"), "targets": ["y"], "split": "column", "split_column": "part", "subset": None}
    config = small_config(
        dataset=source, training={"loss": "mse"}, trainer={"max_epochs": 3}, callbacks={"early_stopping_patience": patience}
    )
    with caplog.at_level(logging.WARNING):
        result = train(config, tmp_path / "run")
    assert result.best_loss is None and result.epochs == (3 if patience is None else 2)
    assert "val/loss is inf after epoch 1, though training is finite" in caplog.text
    assert not (tmp_path / "run" / "checkpoints" / "best.ckpt").exists()
    good_checkpoint(tmp_path / "run", "last.ckpt")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_batches_before_the_first_bad_one_are_counted_wherever_it_happened(bad, device, fused):
    """Later losses may be finite again, and the reduction finds a rank that saw a bad one earlier."""
    alone = SimpleNamespace(reduce=lambda value, reduce_op: value, root_device=device)
    loss = TrainingLoss(fused)
    assert loss.first_not_finite(alone) is None
    for total in (1.0, 2.0):
        loss.update(torch.tensor([total, 4.0], dtype=torch.double, device=device))
    assert loss.first_not_finite(alone) is None
    assert loss.compute_and_reset(alone) == 3 / 8
    for total in (1.0, 0.0, -2.0, bad, 3.0, math.inf):  # likelihoods of densities above 1 are losses below 0
        loss.update(torch.tensor([total, 4.0], dtype=torch.double, device=device))
    assert loss.first_not_finite(alone) == 3
    assert loss.first_not_finite(SimpleNamespace(reduce=lambda value, reduce_op: value if reduce_op == "sum" else value - 2)) == 1
    loss.load((1.0, 1.0))
    assert loss.first_not_finite(alone) is None and loss.state() == (1.0, 1.0)
