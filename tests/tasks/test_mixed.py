"""One network learns numbers and classes, from training to every command."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from run_cases import assert_same_run, log_of, train_and_copy

from molgcn.config.run import parse
from molgcn.config.training import TrainingConfig
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.export import ExportConfig, export
from molgcn.files.yaml_file import read_yaml
from molgcn.predict import PredictConfig, predict
from molgcn.resources import resource
from molgcn.tasks.registry import build_task, learned_with
from molgcn.training.restore import load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")

NAMES = ("active", "logp", "kind", "tpsa")
TASKS = {"active": "classification", "logp": "regression", "kind": "multiclass", "tpsa": "regression"}
COLUMNS = [
    ["active probability"],
    ["logp predicted"],
    ["kind probability 0", "kind probability 1", "kind probability 2"],
    ["tpsa [A^2] predicted"],
]


def task_of():
    return build_task("mixed", NAMES, ("", "", "", "A^2"), 3, TargetConfig(tasks=TASKS))


def targets_of(count, generator):
    values = torch.stack(
        [
            torch.randint(2, (count,), generator=generator).double(),
            torch.randn(count, generator=generator, dtype=torch.double),
            torch.randint(3, (count,), generator=generator).double(),
            10 * torch.randn(count, generator=generator, dtype=torch.double),
        ],
        dim=1,
    )
    return values.masked_fill(torch.rand(count, 4, generator=generator) < 0.3, math.nan)


@pytest.mark.parametrize("known", [True, False])
def test_the_loss_is_the_mean_over_the_known_terms_of_all_targets(known):
    """The loss equals the definition in float64, computed for single molecules and targets."""
    generator = torch.Generator().manual_seed(0)
    targets = targets_of(9, generator) if known else torch.full((9, 4), math.nan, dtype=torch.double)
    task = task_of()
    statistics = tuple(task.statistics_of(targets_of(50, generator).numpy()).values())
    outputs = torch.randn(9, 6, generator=generator, dtype=torch.double, requires_grad=True)  # two numbers, one logit, three logits
    loss = task.loss(TrainingConfig(loss="mse"), fused=False)
    mean, sums = loss(outputs, *task.for_loss(targets, torch.double, *statistics))
    shift, scale = statistics[:2]
    terms = []
    for row, target in zip(outputs, targets, strict=True):
        numbers, label = (target[[1, 3]] - shift) / scale, target[0]
        terms += [(value - number) ** 2 for value, number in zip(row[:2], numbers, strict=True) if not number.isnan()]
        terms += [] if label.isnan() else [-torch.nn.functional.logsigmoid(row[2] if label == 1 else -row[2])]
        terms += [] if target[2].isnan() else [-row[3:].log_softmax(0)[int(target[2])]]
    expected = torch.stack(terms).mean() if terms else outputs.sum() * 0
    torch.testing.assert_close(mean, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums, torch.stack([expected * len(terms), torch.tensor(float(len(terms)))]).detach().double())
    (mine,) = torch.autograd.grad(mean, outputs)
    (exact,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(mine, exact, rtol=1e-12, atol=1e-12)


def test_predictions_stand_in_the_order_of_the_targets():
    task = task_of()
    assert task.columns == COLUMNS and task.num_outputs == 6
    statistics = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.full((1, 2), 0.5), torch.full((1, 3), 1 / 3)]
    assert [*task.statistics_shapes().values()] == [tuple(one.shape) for one in statistics]
    outputs = torch.tensor([[0.5, -0.5, 0.0, 1.0, 1.0, 1.0]])
    given = task.decode(outputs, *statistics)
    torch.testing.assert_close(given, torch.tensor([[0.5, 2.5, 1 / 3, 1 / 3, 1 / 3, 0.0]], dtype=torch.double))
    torch.testing.assert_close(task.output_layer(*statistics)(outputs), given.float())
    assert len(task.digits(*statistics)) == 6
    found = task.measure(given, torch.tensor([[1.0, 2.0, 0.0, 1.0]]))
    assert (found["mae/logp"], found["mae/tpsa"], found["brier/active"]) == (0.5, 1.0, 0.25)
    assert not {"mae/active", "brier/logp"} & found.keys()


def test_a_part_may_say_how_sure_it_is():
    task = learned_with(task_of(), TrainingConfig(loss="mve"))
    assert task.columns[1] == ["logp predicted", "logp std"] and task.num_outputs == 8 and task.num_predictions == 8
    assert task.holds_values == [True, True, False, True, True, True, True, False]
    predictions = np.arange(24.0).reshape(3, 8)
    np.testing.assert_array_equal(task.spread(predictions), np.where([0, 1, 0, 1], predictions[:, [0, 2, 0, 7]], np.nan))
    members = np.stack([predictions, predictions + 2])
    combined = task.combine(members)
    np.testing.assert_allclose(combined[:, [0, 1, 3]], predictions[:, [0, 1, 3]] + 1)
    deviations = members[:, :, 2]
    np.testing.assert_allclose(combined[:, 2], np.sqrt((deviations**2).mean(0) + members[:, :, 1].var(0)))


def test_options_go_to_the_parts_that_have_them():
    task = task_of()
    assert task.settled(TrainingConfig(loss="huber", class_weights="balanced")).loss == "huber"
    assert task.loss_name(TrainingConfig(loss="huber")) == "huber and bce and ce"
    with pytest.raises(UserError, match=r"training\.loss=ce goes with none of the targets, which are learned with l1"):
        build_task("mixed", NAMES[:2], ("", ""), 0, TargetConfig(tasks=TASKS)).settled(TrainingConfig(loss="ce"))


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    """Return a result, its folder, copies of the run at its checkpoints, and the configuration."""
    folder = tmp_path_factory.mktemp("mixed")
    with open(resource("data") / "molecules.csv", newline="") as file:
        rows = [(row["smiles"], float(row["logp"]), float(row["tpsa"])) for row in csv.DictReader(file)]
    lines = [
        f"{smiles},{int(logp > 1)},{'' if number % 5 == 0 else logp},{np.digitize(tpsa, [20, 40])},{tpsa}"
        for number, (smiles, logp, tpsa) in enumerate(rows[:: len(rows) // 200])
    ]
    (folder / "mine.csv").write_text("\n".join([f"smiles,{','.join(NAMES)}", *lines]) + "\n")
    config = small_config(
        dataset={
            "name": "csv",
            "path": str(folder / "mine.csv"),
            "targets": [*NAMES],
            "tasks": {"kind": "multiclass"},  # the others as their values suggest
            "subset": None,
            "cache_dir": str(folder / "cache"),
        },
        backend={"name": "fused"},
        training={"report": True, "monitor": "val/mae", "class_weights": "balanced", "checkpoint_seconds": 0},
        optimizer={"lr": 0.01},
        trainer={"max_epochs": 6},
    )
    result, copies = train_and_copy(config, folder / "run")
    return result, folder, copies, config


def test_a_run_learns_all_and_says_its_tasks(run):
    result, folder, _, _ = run
    assert (result.task, result.tasks) == ("mixed", TASKS)
    assert result.metrics["train/roc_auc/active"] > 0.6 and result.metrics["train/r2/tpsa"] > 0
    assert {"val/mae/logp", "val/mae", "val/roc_auc/active", "val/mcc/kind"} < log_of(folder / "run")[0].keys()
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"parity_regression.png", "classes_classification.png", "classes_multiclass.png", "report.html"} <= names
    text = (folder / "run" / "report.html").read_text()
    for key in ("test/mae/tpsa", "test/roc_auc/active", "test/brier/kind"):
        assert f"{result.metrics[key]:.4g}" in text
        assert key in result.comparison.intervals
    assert result.comparison.baselines.keys() == {"training mean", "class prior"} and result.comparison.thresholds.keys() <= {"active"}
    assert [text.count(f'id="target-{number}"') for number in range(1, 6)] == [1, 1, 1, 1, 0]
    result.save([])
    assert json.loads((folder / "run" / "result.json").read_text())["tasks"] == TASKS


def test_every_place_tells_the_same(run):
    result, folder, _, _ = run
    again = evaluate(parse(EvaluateConfig, {"ckpt": str(folder / "run"), "dataset": {"cache_dir": str(folder / "cache")}, "device": "cpu"}))
    assert again.metrics == pytest.approx(result.metrics, rel=1e-5, abs=1e-6, nan_ok=True)
    table = pd.read_csv(folder / "run" / "predictions_test.csv")
    columns = [column.replace(" [A^2]", "") for columns in COLUMNS for column in columns]
    assert [*table] == ["row", "smiles", "active", columns[0], "logp", columns[1], "kind", *columns[2:5], "tpsa", columns[5]]
    found = task_of().measure(table[columns].to_numpy(), table[[*NAMES]].to_numpy(float))
    assert {f"test/{key}": value for key, value in found.items()} == pytest.approx(
        {key: value for key, value in result.metrics.items() if key.startswith("test/")}, rel=1e-5, abs=1e-6, nan_ok=True
    )


def test_ensembles_predict_every_target(run, tmp_path):
    _, folder, _, _ = run
    best, last = (str(folder / "run" / "checkpoints" / file) for file in ("best.ckpt", "last.ckpt"))
    predict(parse(PredictConfig, {"ckpt": [best, last], "input": str(folder / "mine.csv"), "output": str(tmp_path / "p.csv")}))
    table = pd.read_csv(tmp_path / "p.csv")
    columns = [column.replace(" [A^2]", "") for columns in COLUMNS for column in columns]
    assert [*table][5:] == [name for column in columns for name in (column, f"{column} std")]
    np.testing.assert_allclose(table[columns[2:5]].sum(axis=1), 1, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_exports(run, tmp_path, ending):
    _, folder, _, _ = run
    assert export(parse(ExportConfig, {"ckpt": str(folder / "run"), "output": str(tmp_path / f"m.{ending}")})) < 1e-5


def test_a_killed_run_goes_on_bit_for_bit(run):
    _, folder, copies, config = run
    train(replace(config, resume=str(copies[0])), copies[0])
    assert_same_run(copies[0], folder / "run")
    assert read_yaml(folder / "run" / "config.yaml", dict)["dataset"]["tasks"] == TASKS


@pytest.mark.parametrize(("tasks", "message"), [({"tpsa": "multiclass"}, "dataset.tasks="), (None, None)])
def test_what_a_resumed_run_may_say_of_its_tasks(run, tmp_path, tasks, message):
    from molgcn.training.compatible import check_same_keys

    _, folder, _, config = run
    changed = replace(config, dataset=replace(config.dataset, tasks=tasks))
    if message is None:
        assert check_same_keys(changed, folder / "run").dataset.tasks == TASKS
    else:
        with pytest.raises(UserError, match=message):
            check_same_keys(changed, folder / "run")


@pytest.mark.slow
def test_direct_and_plain_steps_are_the_same(run, tmp_path):
    """Numbers have the same loss with and without autograd."""
    result, _, _, config = run
    plain = train(replace(config, training=replace(config.training, captured=False, report=False)), tmp_path / "plain")
    assert plain.metrics == pytest.approx(result.metrics, rel=1e-6, nan_ok=True)


def test_a_checkpoint_is_enough(run):
    _, folder, _, _ = run
    module = load_module(folder / "run")
    assert [part.name for part in module.task.parts] == ["regression", "classification", "multiclass"]
    assert module.task.columns[2] == COLUMNS[2]
