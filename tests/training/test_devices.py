"""Two processes train the same network as one process with batches of twice the size."""

import csv
import json

import pytest
import torch

from molgcn.training.checkpoint_file import load_checkpoint

OPTIONS = [
    *("dataset.subset=400", "dataset.features=qm9", "dataset.targets=[logp]", "model.norm=layer", "model.hidden_channels=16"),
    *("trainer.max_epochs=2", "trainer.accelerator=cpu", "training.captured=true", "training.report=false", "logger=csv"),
]
ONE_NORM = ["trainer.sync_batchnorm=true", "optimizer=sgd"]  # a bias before batch norm has a gradient of rounding alone, for Adam a step
EXACT = ["trainer.precision=64-true", "scheduler=constant"]  # where results differ by rounding alone


@pytest.fixture
def run(cli, run_cli):
    """Return a function that runs `train.py` for a number of devices, one of them in this process, and returns what it prints."""

    def run(devices, *arguments):
        if devices == 1:
            code, out, err = cli(*arguments)
        else:
            done = run_cli(*arguments, f"trainer.devices={devices}")
            code, out, err = done.returncode, done.stdout, done.stderr
        assert code == 0, err
        return out + err

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        ["backend=fused"],
        ["backend=pyg"],
        ["model=gated_gcn"],
        ["model=dmpnn", "model.norm=null"],
        ["backend=pyg", "model.norm=batch", *ONE_NORM],
        ["backend=reference", "model=gin_plus", "model.num_layers=2", "model.hidden_channels=32", *ONE_NORM],
    ],
    ids=["fused", "pyg", "gated_gcn", "dmpnn", "pyg_one_norm", "gin_plus_one_norm"],
)
def test_two_processes_are_one_with_twice_the_batch(network, run, tmp_path):
    losses, weights, metrics = [], [], []
    for devices in (1, 2):
        folder = tmp_path / f"{devices} devices"
        several = ["trainer.strategy=ddp"] if devices == 2 else []
        printed = run(devices, *OPTIONS, *EXACT, *network, f"dataset.batch_size={64 // devices}", *several, f"hydra.run.dir='{folder}'")
        assert printed.count("not captured as a CUDA graph") == 1
        with open(folder / "metrics.csv", newline="") as file:
            losses.append([(row["step"], float(row["train/loss"] or row["val/loss"])) for row in csv.DictReader(file)])
        with open(folder / "result.json") as file:
            metrics.append(json.load(file)["metrics"])
        weights.append(load_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"])
    assert [step for step, _ in losses[0]] == [step for step, _ in losses[1]] == ["5", "5", "10", "10"]
    assert [loss for _, loss in losses[1]] == pytest.approx([loss for _, loss in losses[0]], rel=1e-10)
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-10)  # over the whole parts, though each process has seen half
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_processes_whose_batches_have_different_numbers_of_labels(run, tmp_path):
    rows = [
        f"{'C' * (n // 8 + 1)}{'NOSF'[n % 4]},{n},{n % 7 if n % 4 == 0 else ''},{'val' if n > 190 else 'test' if n >= 180 else 'train'}"
        for n in range(200)
    ]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,y,z,part", *rows]))
    source = ["dataset=csv", f"dataset.path={tmp_path / 'x.csv'}", "dataset.targets=[y,z]", "dataset.split=column", "model.norm=null"]
    options = [*OPTIONS[3:], *EXACT, *source, "dataset.split_column=part", "trainer.max_epochs=1", "optimizer=sgd"]
    weights = []
    for devices in (1, 2):
        several = ["trainer.strategy=ddp"] if devices == 2 else []
        folder = tmp_path / f"{devices} devices"
        run(devices, *options, f"dataset.batch_size={64 // devices}", *several, f"hydra.run.dir='{folder}'")
        weights.append(load_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"])
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fused", "pyg"])
def test_two_processes_go_on_as_if_never_stopped(backend, run_cli, tmp_path):
    """Each process has its own generators, since PyG's dropout draws as many numbers as the process has atoms."""
    several = ["trainer.devices=2", "trainer.strategy=ddp", "model.dropout=0.3", "scheduler=constant", f"backend={backend}"]
    ends = {}
    for name, parts in (("whole", [2]), ("in two", [1, 2])):
        for epochs in parts:
            options = [*OPTIONS, *several, "dataset.batch_size=32", f"hydra.run.dir='{tmp_path / name}'"]
            arguments = options if epochs == parts[0] else [f"resume='{tmp_path / name}'"]
            done = run_cli(*arguments, f"trainer.max_epochs={epochs}")
            assert done.returncode == 0, done.stderr
        ends[name] = load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")
        with open(tmp_path / name / "metrics.csv", newline="") as file:
            ends[name]["losses"] = [(row["step"], row["train/loss"], row["val/loss"]) for row in csv.DictReader(file)]
    for name, value in ends["whole"]["state_dict"].items():
        assert torch.equal(ends["in two"]["state_dict"][name], value), name
    assert ends["in two"]["losses"] == ends["whole"]["losses"]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "steps"), [(2, 1, 7 + 6), (1, 2, 14 + 3)])
def test_an_epoch_goes_on_with_another_number_of_devices(before, after, steps, run, tmp_path):
    """Each run stops in its second epoch after 128 of 320 molecules, at 7 of 10 steps of its schedule, or 14 of 20 on one device."""
    folder = tmp_path / "run"
    options = [*OPTIONS, "dataset.batch_size=32", "scheduler=cosine", f"hydra.run.dir='{folder}'"]
    run(before, *options, f"trainer.max_steps={14 // before}")
    run(after, f"resume='{folder}'", "trainer.max_steps=-1", f"trainer.devices={after}")
    ended = load_checkpoint(folder / "checkpoints" / "last.ckpt")
    assert ended["global_step"] == steps
    assert ended["lr_schedulers"][0]["last_epoch"] == 20 // after
    assert ended["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(0.0, abs=1e-12)
    assert ended["train_loader"]["read"] == 320


@pytest.mark.slow
def test_all_processes_stop_where_a_loss_is_not_finite(run_cli, tmp_path):
    diverging = ["optimizer=sgd", "optimizer.lr=1e30", "model.norm=null", "scheduler=constant"]
    done = run_cli(*OPTIONS, "trainer.devices=2", "trainer.strategy=ddp", *diverging, f"hydra.run.dir='{tmp_path}'")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "The training loss is not finite in optimiser step 2 (epoch 1, batch 2 of" in done.stderr
    assert not (tmp_path / "result.json").exists() and not list(tmp_path.glob("checkpoints/*.ckpt"))


@pytest.mark.slow
def test_each_fold_trains_on_all_processes(run_cli, tmp_path):
    folds = ["dataset.split=cv", "dataset.folds=2", "backend=pyg", "dataset.batch_size=32", "trainer.devices=2", "trainer.strategy=ddp"]
    done = run_cli(*OPTIONS, *folds, f"hydra.run.dir='{tmp_path / 'run'}'")
    assert done.returncode == 0, done.stderr
    assert [(done.stdout + done.stderr).count(f"fold_{fold} ({fold + 1} of 2)") for fold in range(2)] == [1, 1]
    metrics = [
        json.loads((tmp_path / "run" / name / "result.json").read_text())["metrics"]["test/mae/logp"] for name in ("fold_0", "fold_1")
    ]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["test/mae/logp"] == pytest.approx(sum(metrics) / 2)


@pytest.mark.slow
def test_101_molecules_on_two_processes_are_101(run, tmp_path):
    """None is counted twice to make the processes' shares equal, in metrics, rows or the loss."""
    rows = [f"{'C' * (n // 20 + 1)}{'O' * (n % 20)},{n % 17 + 1},{'train' if n >= 202 else 'val' if n % 2 else 'test'}" for n in range(303)]
    (tmp_path / "x.csv").write_text("\n".join(["smiles,y,part", *rows]))
    source = ["dataset=csv", "dataset.path=x.csv", "dataset.targets=[y]", "dataset.split=column", "dataset.split_column=part"]
    options = [
        *source,
        *OPTIONS[3:5],
        "trainer.accelerator=cpu",
        "trainer.max_epochs=1",
        "optimizer.lr=1e-12",
        "logger=csv",
        "recipe=plain",
    ]
    results = []
    for devices in (1, 2):
        folder = tmp_path / str(devices)
        run(devices, *options, f"hydra.run.dir={folder}", "training.monitor=val/spearman")
        with open(folder / "predictions_test.csv", newline="") as file:
            assert sorted(int(row["row"]) for row in csv.DictReader(file)) == [n for n in range(202) if n % 2 == 0]
        results.append(json.loads((folder / "result.json").read_text()))
    assert results[1]["metrics"] == pytest.approx(results[0]["metrics"], rel=1e-5)
    for key in ("best_loss", "best_value"):
        assert results[1][key] == pytest.approx(results[0][key], rel=1e-5)
