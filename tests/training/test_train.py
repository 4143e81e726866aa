"""Whole training runs work on a few hundred molecules."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
import torch

from molgcn.config.run import Config, parse
from molgcn.errors import UserError, counted
from molgcn.metrics.regression import METRICS
from molgcn.tasks.registry import build_task, settled
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")


def column(folder, name):
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row[name]]


def test_a_run_leaves_everything_in_its_folder(tmp_path, small_config):
    folder = tmp_path / "a run (1), with = and spaces"
    result = train(small_config(training={"report": True}, dataset={"targets": ["logp", "tpsa"]}), folder)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names >= {
        "config.yaml",
        "provenance.json",
        "splits.json",
        "training_hashes.npy",
        "metrics.csv",
        "predictions_test.csv",
        "learning_curve.png",
        "parity.png",
        "report.html",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
    }
    assert not any("=" in path.name for path in folder.rglob("*.ckpt"))
    assert set(result.metrics) == {f"{part}/{kind}/{t}" for part in ("train", "val", "test") for kind in METRICS for t in ("logp", "tpsa")}
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["versions"]["torch"] == torch.__version__
    assert provenance["seed"] == 0
    assert len(provenance["data_hash"]) == 64
    table = pd.read_csv(folder / "predictions_test.csv")
    true, predicted = table["tpsa [A^2]"], table["tpsa [A^2] predicted"]
    assert np.abs(true - predicted).mean() == pytest.approx(result.metrics["test/mae/tpsa"], rel=1e-4)
    splits = json.loads((folder / "splits.json").read_text())
    assert sorted(table["row"]) == sorted(splits["test"])
    assert len(column(folder, "val/loss")) == 2
    assert all(rate > 0 for rate in column(folder, "throughput/molecules_per_second"))
    assert all(0 <= share < 1 for share in column(folder, "throughput/data_wait"))


def test_double_precision(tmp_path, small_config):
    """Both backends in float64 learn the same to 1e-9."""
    weights, losses = [], []
    for backend, loader in (("fused", "packed"), ("pyg", "packed"), ("pyg", "pyg")):
        folder = tmp_path / f"{backend}-{loader}"
        chosen = {"backend": {"name": backend}, "loader": {"name": loader}}
        train(small_config(**chosen, trainer={"precision": "64-true"}, training={"report": True}), folder)
        state = load_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
        weights.append({name: tensor for name, tensor in state.items() if tensor.is_floating_point()})
        losses.append(column(folder, "val/loss"))
    assert {tensor.dtype for tensor in weights[0].values()} == {torch.float64}
    for other, loss in zip(weights[1:], losses[1:], strict=True):
        torch.testing.assert_close(weights[0], other, rtol=1e-9, atol=1e-9)
        assert losses[0] == pytest.approx(loss, rel=1e-6)  # written with seven digits


def test_overfits_a_few_molecules(tmp_path, small_config):
    """The whole path can learn 24 molecules by heart."""
    config = small_config(
        dataset={"subset": 30, "split_fractions": [24, 3, 3], "batch_size": 8, "features": "general"},
        model={"hidden_channels": 64, "num_layers": 3, "norm": None},
        optimizer={"lr": 3e-3},
        trainer={"max_epochs": 150, "check_val_every_n_epoch": 150},
    )
    result = train(config, tmp_path)
    spread = np.std(pd.read_csv(tmp_path / "metrics.csv")["train/loss"].dropna().head(3))
    assert result.metrics["train/mae/logp"] < 0.05, spread


def test_same_seed_same_run_other_seed_another(tmp_path, small_config):
    losses = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(small_config(seed=seed, model={"dropout": 0.1}), tmp_path / name)
        losses.append(column(tmp_path / name, "train/loss"))
    assert losses[0] == losses[1] != losses[2]


def test_loaders_do_not_change_the_training(tmp_path, small_config):
    """The packed loader and PyG's give the same batches, so the same losses up to the order of bonds."""
    losses = []
    for name in ("pyg", "packed"):
        train(small_config(loader={"name": name}), tmp_path / name)
        losses.append(column(tmp_path / name, "train/loss"))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_accumulation_steps_once_in_so_many_batches(tmp_path, small_config):
    train(small_config(training={"accumulate_batches": 3}), tmp_path)
    assert load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["global_step"] == 2 * 3  # 8 batches an epoch: 3 + 3 + 2


def test_accumulated_batches_weigh_as_many_as_they_have_labels(tmp_path, small_config):
    """One step of three batches, of which some have more labels than others, is a step of one batch with all molecules."""
    rows = [f"{'C' * (n + 1)}O,{n},{n % 7 if n % 4 == 0 else ''},train" for n in range(20)]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,y,z,part", *rows, "CC,1,1,val", "CCC,2,1,test"]))
    source = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["y", "z"], "split": "column", "split_column": "part"}
    step = {
        "model": {"norm": None},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "scheduler": {"name": "constant"},
        "trainer": {"max_epochs": 1},
    }
    weights = []
    for size, batches in ((20, 1), (8, 4)):
        folder = tmp_path / str(size)
        dataset = {**source, "subset": None, "batch_size": size}
        train(small_config(dataset=dataset, training={"accumulate_batches": batches}, **step), folder)
        saved = load_checkpoint(folder / "checkpoints" / "last.ckpt")
        assert saved["global_step"] == 1
        weights.append(saved["state_dict"])
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=1e-6)


def test_gradient_clipping_bounds_the_update(tmp_path, small_config):
    """With plain SGD a step is lr * gradient, so no step may be longer than lr * clip."""
    config = small_config(
        training={"gradient_clip_norm": 1e-3},
        optimizer={"name": "sgd", "lr": 1.0},
        scheduler={"name": "constant"},
        trainer={"max_steps": 1},
    )
    torch.manual_seed(config.seed)
    train(config, tmp_path)
    after = load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["state_dict"]
    fresh = small_config(optimizer={"name": "sgd", "lr": 1e-12}, scheduler={"name": "constant"}, trainer={"max_steps": 1})
    train(fresh, tmp_path / "fresh")
    before = load_checkpoint(tmp_path / "fresh" / "checkpoints" / "last.ckpt")["state_dict"]
    moved = [after[key] - before[key] for key in after if key.startswith("model.") and "running" not in key and "num_batches" not in key]
    length = torch.cat([step.flatten() for step in moved]).norm()
    assert 0.9e-3 < length < 1.0001e-3


def test_ema_weights_are_the_ones_reported(tmp_path, small_config):
    train(small_config(training={"ema_decay": 0.999}, optimizer={"lr": 0.01}), tmp_path / "ema")
    state = load_checkpoint(tmp_path / "ema" / "checkpoints" / "best.ckpt")["state_dict"]
    assert not torch.equal(state["ema.module.convs.0.lin.weight"], state["model.convs.0.lin.weight"])
    train(small_config(optimizer={"lr": 0.01}), tmp_path / "plain")
    assert column(tmp_path / "ema", "val/loss")[-1] > column(tmp_path / "plain", "val/loss")[-1]  # it lags far behind after 16 steps


def test_early_stopping_and_the_rate_s_floor(tmp_path, small_config, caplog):
    caplog.set_level("INFO", "molgcn")
    for patience, epochs in ((1, 2), ("auto", 21)):
        never = {"early_stopping_patience": patience, "early_stopping_min_delta": 100.0}
        assert train(small_config(callbacks=never, trainer={"max_epochs": 22}), tmp_path / f"{patience}").epochs == epochs
        why = f"val/loss has not improved in {counted(epochs - 1, 'validation')} (callbacks.early_stopping_patience={epochs - 1})"
        assert f"Training ends after {epochs} epochs of at most 22: {why}" in caplog.messages
    cosine = small_config(
        scheduler={"name": "cosine"}, callbacks={"stop_below_lr": 5e-4}, optimizer={"lr": 1e-3}, trainer={"max_epochs": 6}
    )
    assert train(cosine, tmp_path / "b").epochs == 4  # at half of the run the rate is half, not yet below
    assert "Training ends after 4 epochs of at most 6: the learning rate is below callbacks.stop_below_lr=0.0005" in caplog.messages


def test_missing_targets_are_masked(tmp_path, small_config):
    rows = ["smiles,y,z"] + [f"{'C' * n}O,{n if n % 3 else ''},{-n if n % 2 else ''}" for n in range(1, 60)]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n")
    dataset = {
        "name": "csv",
        "path": str(tmp_path / "x.csv"),
        "targets": ["y", "z"],
        "features": "general",
        "batch_size": 8,
        "subset": None,
    }
    result = train(small_config(dataset=dataset, training={"report": True}), tmp_path / "run")
    assert np.isfinite(result.metrics["test/mae/y"])
    table = pd.read_csv(tmp_path / "run" / "predictions_test.csv")
    assert table["y"].isna().any()
    assert table["y predicted"].notna().all()


@pytest.mark.parametrize(
    "smiles",
    [["C", "[He]", "O"], ["C" * 200, "CC", "CCC"], ["CC"] * 6],
    ids=["one atom, no bond", "200 atoms", "duplicates"],
)
def test_odd_molecules(smiles, tmp_path, small_config):
    rows = ["smiles,y"] + [f"{text},{number}" for number, text in enumerate(smiles * 4)]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n")
    dataset = {"name": "csv", "path": str(tmp_path / "x.csv"), "targets": ["y"], "features": "general", "batch_size": 2, "subset": None}
    dataset["group_duplicates"] = len(set(smiles)) > 1  # one molecule alone cannot be divided otherwise
    result = train(small_config(dataset=dataset, model={"norm": "layer"}), tmp_path / "run")
    assert np.isfinite(result.metrics["train/mae/y"])


def test_config_survives_its_file(tmp_path, small_config):
    from omegaconf import OmegaConf

    config = small_config(model={"dropout": 0.25})
    train(config, tmp_path)
    saved = parse(Config, OmegaConf.to_container(OmegaConf.load(tmp_path / "config.yaml")))
    assert saved == settled(config, build_task("regression", ["logp"], [""], 0))


@pytest.mark.parametrize("first", [None, 0.5])
@pytest.mark.parametrize("second", [None, 0.999])
def test_another_run_s_weights_are_those_it_was_chosen_for(first, second, tmp_path, small_config):
    """If the other run has a moving average, it becomes the model's weights and the start of the new average."""
    train(small_config(training={"ema_decay": first}, optimizer={"lr": 0.01}), tmp_path / "first")
    best = tmp_path / "first" / "checkpoints" / "best.ckpt"
    still = {"optimizer": {"name": "sgd", "lr": 1e-12}, "scheduler": {"name": "constant"}, "trainer": {"max_steps": 1}}
    train(small_config(**still, training={"ema_decay": second}, ckpt_path=str(best)), tmp_path / "second")
    given, taken = (load_checkpoint(path)["state_dict"] for path in (best, tmp_path / "second" / "checkpoints" / "last.ckpt"))
    source = "model." if first is None else "ema.module."
    for name in ("convs.0.lin.weight", "convs.1.bias", "head.weight"):
        for prefix in ("model.", *(["ema.module."] if second else [])):
            torch.testing.assert_close(taken[prefix + name], given[source + name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("scheduler", ["cosine", "exponential", "onecycle"])
def test_a_schedule_of_no_length_is_refused(scheduler, tmp_path, small_config):
    endless = small_config(scheduler={"name": scheduler, "min_lr": 1e-5}, trainer={"max_epochs": -1, "max_time": "00:00:00:01"})
    with pytest.raises(UserError, match=rf"scheduler={scheduler} ends with the training.*scheduler=constant or plateau"):
        train(endless, tmp_path)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"scheduler": {"name": "plateau"}}, "scheduler=plateau"),
        ({"callbacks": {"early_stopping_patience": 3}}, "early_stopping_patience"),
        ({"training": {"monitor": "val/mae"}}, r"training\.monitor=val/mae"),
    ],
    ids=str,
)
def test_what_waits_for_validations_needs_some(changes, key, tmp_path, small_config):
    with pytest.raises(UserError, match=rf"{key} looks at validations, but trainer\.limit_val_batches=0"):
        train(small_config(**changes, trainer={"limit_val_batches": 0}), tmp_path)


@pytest.mark.parametrize("limit", ["max_epochs", "max_steps"])
@pytest.mark.parametrize("scheduler", ["cosine", "onecycle", "plateau"])
def test_a_network_as_it_was_drawn(scheduler, limit, tmp_path, small_config):
    result = train(small_config(scheduler={"name": scheduler}, trainer={limit: 0}), tmp_path)
    assert result.epochs == 0 and result.metrics["test/mae/logp"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit_train_batches": 0.0001}, "Please increase the `limit_train_batches`"),
        ({"val_check_interval": 1000}, r"`val_check_interval` \(1000\) must be less"),
    ],
    ids=str,
)
def test_options_that_lightning_refuses_late(options, message, tmp_path, small_config):
    with pytest.raises(UserError, match=rf"refuses an option under trainer\.\*: .*{message}"):
        train(small_config(trainer=options), tmp_path)


def test_fused_operators_refuse_statistics_of_several_devices(tmp_path, small_config):
    config = small_config(backend={"name": "fused"}, trainer={"sync_batchnorm": True})
    with pytest.raises(UserError, match=r"trainer\.sync_batchnorm=true does not go with backend=fused"):
        train(config, tmp_path)
