"""A captured step gives the weights, progress, log and checkpoints of the plain step."""

from __future__ import annotations

import csv
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from run_cases import assert_same_run, log_of, train_and_copy

from molgcn.cuda_runtime.launch import Gpu
from molgcn.nn import batch_layout
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.steps.captured import CapturedForward, CapturedStep
from molgcn.training.steps.watch import Watch
from molgcn.training.train import train

DEEP: dict[str, Any] = {"hidden_channels": 32, "num_layers": 6, "norm": None, "residual": False}
REFERENCE: dict[str, Any] = {"backend": {"name": "reference"}}
MANY = {"norm": "batch", "residual": True, "feed_forward": True, "dropout": 0.2, "embed": True, "encodings": {"rwse": 4, "rwse_dim": 3}}
VARIANTS: dict[str, dict[str, Any]] = {
    "adam": {},
    "rich": {
        "model": {"dropout": 0.2, "norm": "layer"},
        "training": {"ema_decay": 0.9, "accumulate_batches": 3, "gradient_clip_norm": 0.5, "loss": "huber"},
        "scheduler": {"name": "plateau", "patience": 0},
    },
    "batch_norm": {"model": {"norm": "batch", "residual": True, "last_activation": True, "head_layers": 2}},
    "adamw_warmup": {"optimizer": {"name": "adamw", "weight_decay": 0.1}, "scheduler": {"name": "cosine", "warmup_epochs": 1.5}},
    "sgd": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True}, "model": {"pool": "max"}},
    "max_steps": {"trainer": {"max_steps": 17, "max_epochs": -1}, "training": {"accumulate_batches": 2}},
    "validation_within_epoch": {"trainer": {"val_check_interval": 3}, "model": {"dropout": 0.1}},
    "early_stopping": {"callbacks": {"early_stopping_patience": 1, "early_stopping_min_delta": 10.0}, "trainer": {"max_epochs": 5}},
    "bf16": {"trainer": {"precision": "bf16-mixed"}},
    "onecycle": {"scheduler": {"name": "onecycle"}, "training": {"gradient_clip_norm": 0.5}},
    "onecycle_adamw": {"scheduler": {"name": "onecycle"}, "optimizer": {"name": "adamw", "weight_decay": 0.1}, "model": {"dropout": 0.2}},
    "exponential": {"scheduler": {"name": "exponential", "warmup_epochs": 1.5, "start_lr": 1e-4, "min_lr": 1e-4}},
    **{loss: {"training": {"loss": loss}, "model": {"dropout": 0.2}} for loss in ("mve", "evidential", "quantile")},
    "staged": {"dataset": {"resident": False}},
    "descriptors": {"dataset": {"descriptors": ["tpsa"]}},
    "staged_descriptors": {"dataset": {"descriptors": ["tpsa"], "resident": False}},
    "reference_descriptors": REFERENCE | {"dataset": {"descriptors": ["tpsa"]}},
    **{f"reference_{name}": REFERENCE | {"model": {**MANY, "name": name}} for name in ("gcn", "gin", "sage", "gat")},
    "reference_dmpnn": REFERENCE | {"model": {"name": "dmpnn", "last_activation": True, "dropout": 0.2}},
}


def assert_same_progress(one: Path, other: Path) -> None:
    """Assert that runs are the same, with the same counters of Lightning."""
    assert_same_run(one, other)
    for name in ("last.ckpt", "best.ckpt"):
        mine, theirs = (load_checkpoint(folder / "checkpoints" / name) for folder in (one, other))
        assert mine["loops"] == theirs["loops"]


def count_steps(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> list[bool]:
    """Return a list that grows with every step requested from a `kind`, by whether it took the step."""
    taken: list[bool] = []
    call = kind.__call__

    def counted(self: Any, *args: Any) -> bool:
        taken.append(call(self, *args))
        return taken[-1]

    monkeypatch.setattr(kind, "__call__", counted)
    return taken


def on_gpu(small_config: Any, changes: dict[str, Any], wanted: bool, deterministic: bool = True) -> Any:
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in changes.items()}
    values.setdefault("backend", {"name": "fused"})
    values["model"] = {**DEEP, **values.get("model", {})}
    values["trainer"] = {"max_epochs": 3, "accelerator": "gpu", "deterministic": deterministic, **values.get("trainer", {})}
    values["training"] = {**values.get("training", {}), "captured": wanted}
    return small_config(**values)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_captured_and_plain_steps_are_bit_for_bit_the_same(variant, tmp_path, small_config, monkeypatch):
    train(on_gpu(small_config, VARIANTS[variant], False), tmp_path / "plain")
    replays = count_steps(monkeypatch, CapturedStep)
    train(on_gpu(small_config, VARIANTS[variant], True), tmp_path / "captured")
    assert sum(replays) > len(replays) // 2
    assert_same_progress(tmp_path / "captured", tmp_path / "plain")


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["classification", "multiclass"])
def test_captured_steps_learn_classes(task, tmp_path, small_config, monkeypatch):
    count = {"classification": 2, "multiclass": 3}[task]
    lines = [f"{'C' * (1 + number % 30)}{'NO'[number % 2]},{number % count}" for number in range(200)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,y", *lines]))
    dataset = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "subset": None, "features": "general"}
    changes = {"task": task, "dataset": dataset, "training": {"class_weights": "balanced"}}
    train(on_gpu(small_config, changes, False), tmp_path / "plain")
    replays = count_steps(monkeypatch, CapturedStep)
    train(on_gpu(small_config, changes, True), tmp_path / "captured")
    assert sum(replays) > len(replays) // 2
    assert_same_progress(tmp_path / "captured", tmp_path / "plain")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gine", "dmpnn"])
def test_captured_steps_learn_rows_of_several_molecules(name, tmp_path, small_config, monkeypatch):
    """Each molecule has its own encoder, whose number of atoms depends on values."""
    lines = [f"{'C' * (1 + number % 30)}O,{'N' + 'C' * (number % 7)},{number % 11}" for number in range(200)]
    (tmp_path / "a.csv").write_text("\n".join(["solute,solvent,y", *lines]))
    dataset = {"name": "csv", "path": str(tmp_path / "a.csv"), "smiles": ["solute", "solvent"], "targets": ["y"], "subset": None}
    model = {"name": name, "bonds": True, "shared_encoder": False, "last_activation": True}
    changes = REFERENCE | {"dataset": dataset | {"features": "general"}, "model": model}
    train(on_gpu(small_config, changes, False), tmp_path / "plain")
    replays = count_steps(monkeypatch, CapturedStep)
    train(on_gpu(small_config, changes, True), tmp_path / "captured")
    assert sum(replays) > len(replays) // 2
    assert_same_progress(tmp_path / "captured", tmp_path / "plain")


@pytest.mark.gpu
def test_a_run_with_merged_leaves_learns_the_same_and_counts_all_atoms(tmp_path, small_config, monkeypatch):
    changes: dict[str, Any] = {"trainer": {"log_every_n_steps": 1}, "dataset": {"features": "qm9"}}
    logs, sizes = [], []
    for multiprocessors in (1000, 1):  # so many that each has less than a tile; one, which has several
        monkeypatch.setattr(batch_layout, "gpu", lambda device, count=multiprocessors: Gpu(count, 227 * 1024))
        for wanted in (False, True):
            folder = tmp_path / f"{multiprocessors}-{wanted}"
            train(on_gpu(small_config, changes, wanted), folder)
            with open(folder / "metrics.csv", newline="") as file:
                logs.append([row for row in csv.DictReader(file) if row["train/loss"]])
    losses = [[float(row["train/loss"]) for row in log] for log in logs]
    assert losses[0] == losses[1] and losses[2] == losses[3]  # captured or not
    whole, merged = losses[1::2]
    assert merged != whole and merged[:8] == pytest.approx(whole[:8], rel=1e-4)  # roundings, and what Adam makes of them
    for log in logs:
        rates = [(float(row["throughput/atoms_per_second"]), float(row["throughput/molecules_per_second"])) for row in log]
        sizes.append(sum(atoms / molecules for atoms, molecules in rates) / len(rates))
    assert sizes == pytest.approx([sizes[0]] * 4, rel=1e-2)


@pytest.mark.gpu
def test_losses_agree_without_deterministic_mode(tmp_path, small_config):
    losses = []
    for wanted in (False, True):
        changes = {"trainer": {"log_every_n_steps": 1}}
        train(on_gpu(small_config, changes, wanted, deterministic=False), tmp_path / str(wanted))
        losses.append([float(row["train/loss"]) for row in log_of(tmp_path / str(wanted)) if row["train/loss"]][:10])
    assert len(losses[0]) == 10
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.gpu
def test_determinism_takes_no_more_kernels(tmp_path, small_config):
    counts = []
    for deterministic in (False, True):
        folder = tmp_path / str(deterministic)
        train(on_gpu(small_config, {}, True, deterministic), folder)
        with open(folder / "metrics.csv", newline="") as file:
            counts.append({row["throughput/kernel_launches"] for row in csv.DictReader(file)} - {""})
    assert counts[0] == counts[1] and len(counts[0]) == 1


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_one_gpu_after_another_in_a_process(tmp_path, small_config):
    for device in (0, 1):
        train(on_gpu(small_config, {"trainer": {"devices": [device]}}, True), tmp_path / str(device))
    assert_same_progress(tmp_path / "1", tmp_path / "0")


@pytest.mark.gpu
def test_a_captured_run_resumes_exactly(tmp_path, small_config):
    changes = {
        "model": {"dropout": 0.2},
        "training": {"checkpoint_seconds": 0, "accumulate_batches": 2, "ema_decay": 0.9},
        "scheduler": {"name": "cosine", "warmup_epochs": 1},
    }
    config = on_gpu(small_config, changes, True)
    _, copies = train_and_copy(config, tmp_path / "run")
    assert len(copies) >= 8
    for copy in copies[::3]:
        train(replace(config, resume=str(copy)), copy)
        assert_same_progress(copy, tmp_path / "run")


@pytest.mark.gpu
def test_validation_is_replayed_from_the_weights_of_the_moment(tmp_path, small_config, monkeypatch):
    replayed: list[bool] = []
    call = CapturedForward.__call__

    def checked(self: CapturedForward, batch: Any) -> torch.Tensor:
        replayed.append(batch in self._graphs)
        prediction = call(self, batch)
        torch.testing.assert_close(prediction, self.model(batch), rtol=1e-6, atol=1e-7)
        return prediction

    monkeypatch.setattr(CapturedForward, "__call__", checked)
    train(on_gpu(small_config, {"training": {"ema_decay": 0.5}, "dataset": {"batch_size": 8, "eval_batch_size": 8}}, True), tmp_path)
    assert sum(replayed) >= 6


@pytest.mark.gpu
def test_one_cycle_of_sgd_takes_the_plain_step_and_says_why(tmp_path, small_config, monkeypatch, caplog):
    replays = count_steps(monkeypatch, CapturedStep)
    sgd = {"name": "sgd", "lr": 0.01, "momentum": 0.9}
    with caplog.at_level(logging.WARNING):
        train(on_gpu(small_config, {"scheduler": {"name": "onecycle"}, "optimizer": sgd}, True), tmp_path)
    assert replays == []
    assert "not captured as a CUDA graph: scheduler=onecycle" in caplog.text


class SameWithoutGraph:
    """A step that does the device's work at once without Lightning's knowledge, as a replay does."""

    def __init__(self, module: Any, optimizer: Any) -> None:
        self.watch = Watch(module.model)
        self.module, self.optimizer, self.num_kernels = module, optimizer, None
        self.taken = 0

    def __call__(self, batch: Any, first: bool, last: bool) -> bool:
        self.module.add_gradients(batch)
        if last:
            self.module.update_weights(self.optimizer)
        self.taken += 1
        return True


@pytest.mark.parametrize("variant", ["rich", "max_steps", "validation_within_epoch", "early_stopping"])
def test_lightning_counts_steps_that_it_does_not_see(variant, tmp_path, small_config):
    config = small_config(**{**VARIANTS[variant], "backend": {"name": "fused"}})
    train(config, tmp_path / "plain")
    made: list[SameWithoutGraph] = []

    def replace_steps(trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == batch_idx == 0:  # when a way is chosen
            made.append(SameWithoutGraph(module, trainer.optimizers[0]))
        else:
            module.steps.prepared = made[0]

    train(config, tmp_path / "captured", [LambdaCallback(on_train_batch_start=replace_steps)])
    assert made[0].taken > 10
    assert_same_progress(tmp_path / "captured", tmp_path / "plain")


@pytest.mark.parametrize("wanted", [True, "auto", False])
def test_a_cpu_has_no_graphs(wanted, tmp_path, small_config, caplog):
    config = small_config(training={"captured": wanted}, trainer={"max_epochs": 1})
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path)
    assert ("not captured as a CUDA graph: it needs a GPU" in caplog.text) == (wanted is True)
