"""The task follows from the targets' values, and wrong values are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from molgcn.config.training import TrainingConfig
from molgcn.data import PackedMolecules
from molgcn.data.load import LoadedDataset
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.tasks.choice import check_options, choose_task
from molgcn.tasks.registry import build_task, settled

COUNT = 12
HALF = np.arange(COUNT) % 2.0
THREE = np.arange(COUNT) % 3.0
SOME = np.where(np.arange(COUNT) < 4, math.nan, HALF)
NUMBERS = np.linspace(-1, 1, COUNT)
ZERO = np.zeros(COUNT)


def data(*columns):
    names = [f"y{number}" for number in range(len(columns))]
    molecules = PackedMolecules.from_smiles(["C"] * COUNT, targets=np.stack(columns, axis=1), target_names=names, num_workers=0)
    return LoadedDataset(molecules, {"train": np.arange(8), "val": np.array([8, 9]), "test": np.array([10, 11])}, "set", "0")


@pytest.mark.parametrize(
    ("wanted", "columns", "task", "num_classes", "said"),
    [
        ("auto", [HALF], "classification", 2, "All values of y0 are 0 or 1: task=classification"),
        ("auto", [HALF, SOME], "classification", 2, "All values of y0, y1 are 0 or 1"),
        ("auto", [NUMBERS], "regression", 0, None),
        ("auto", [THREE], "regression", 0, None),
        ("auto", [ZERO], "regression", 0, "All values of 'y0' in the training part are 0, from which nothing can be learned"),
        ("auto", [NUMBERS, SOME], "regression", 0, r"'y1' holds only 0 and 1, but .* numbers: .*dataset\.tasks=\{y1: classification\}'"),
        ("auto", [2 * HALF - 1], "regression", 0, r"'y0' holds only -1 and 1, .*'dataset\.labels=\{y0: \{\"-1\": 0, \"1\": 1\}\}'"),
        ("auto", [HALF / 2], "regression", 0, None),
        ("regression", [HALF], "regression", 0, None),
        ("classification", [HALF, ZERO], "classification", 2, "No training molecule has the class 1 of 'y1'"),
        ("multiclass", [THREE, HALF], "multiclass", 3, r"class 2 of 'y1': .* ROC-AUC .*dataset\.tasks=\{y1: classification\}' learns two"),
        ("multiclass", [THREE, 2 * HALF], "multiclass", 3, r"class 1 of 'y1': .*undefined\. dataset\.labels numbers classes without gaps"),
        ("multiclass", [THREE, THREE], "multiclass", 3, None),
        ("multiclass", [HALF], "multiclass", 2, None),
        ("multiclass", [np.where(np.arange(COUNT) == 9, 3, THREE)], "multiclass", 4, "No training molecule has the class 3 of 'y0'"),
    ],
)
def test_the_task_of_values(wanted, columns, task, num_classes, said, caplog):
    caplog.set_level("INFO")
    chosen = choose_task(wanted, data(*columns))
    assert (chosen.name, chosen.num_classes) == (task, num_classes)
    if said is None:
        assert caplog.messages == []
    else:
        (message,) = caplog.messages
        assert pytest.raises(AssertionError, match=said).matches(AssertionError(message))
        assert len(message) < 250


@pytest.mark.parametrize(
    ("wanted", "columns", "message"),
    [
        ("classification", [THREE], r"'y0' has the value 2 in row 2 .*Expected 0, 1 or an empty cell.*task=multiclass"),
        ("classification", [HALF, NUMBERS], r"'y1' has the value -1 in row 0 "),
        ("classification", [np.where(HALF > 0, 0.5, HALF)], r"value 0\.5 in row 1 .*duplicates=mean"),
        ("multiclass", [NUMBERS], r"value -1 in row 0 .*not a class of task=multiclass\. Expected a whole number from 0 to 1"),
        ("multiclass", [THREE + 0.5], r"value 0\.5 in row 0 "),
        ("multiclass", [THREE * 1e8], r"value 1e\+08 in row 1 .*from 0 to 999"),
        ("classification", [ZERO], r"All labels of 'y0' in the training part are 0, from which nothing can be learned"),
        ("auto", [np.where(np.arange(COUNT) < 8, 1.0, HALF)], r"in the training part are 1"),
    ],
)
def test_values_that_are_no_classes(wanted, columns, message):
    with pytest.raises(UserError, match=message):
        choose_task(wanted, data(*columns))


@pytest.mark.parametrize(("task", "loss"), [("regression", "l1"), ("classification", "bce"), ("multiclass", "ce")])
def test_options_belong_to_a_task(task, loss):
    learned = build_task(task, ("y",), ("",), 2)
    assert learned.settled(TrainingConfig()).loss == loss
    for other in ("l1", "mse", "huber", "bce", "ce", "focal"):
        options = TrainingConfig(loss=other)
        if other in learned.losses:
            assert learned.settled(options) == options
        else:
            with pytest.raises(UserError, match=f"training.loss={other} does not go with task={task}, which is learned with .*{loss}"):
                learned.settled(options)
    if task == "regression":
        with pytest.raises(UserError, match=r"class_weights=balanced does not go with task=regression"):
            learned.settled(TrainingConfig(class_weights="balanced"))


@pytest.mark.parametrize(("task", "layers"), [("regression", 2), ("classification", 1), ("multiclass", 1)])
def test_head_layers_are_left_to_the_task(task, layers, small_config):
    learned = build_task(task, ("y",), ("",), 2)
    assert settled(small_config(model={"head_layers": None}), learned).model.head_layers == layers
    assert settled(small_config(model={"head_layers": 0}), learned).model.head_layers == 0


TASKS = {"y0": "classification", "y1": "regression"}


@pytest.mark.parametrize(
    ("wanted", "given", "tasks"),
    [
        ("auto", {"y0": "classification"}, TASKS),
        ("mixed", {"y1": "regression"}, TASKS),
        ("auto", {"y0": "multiclass"}, {**TASKS, "y0": "multiclass"}),
        ("regression", {"y0": "regression"}, dict.fromkeys(TASKS, "regression")),
        ("auto", dict.fromkeys(TASKS, "regression"), dict.fromkeys(TASKS, "regression")),
    ],
)
def test_tasks_by_column(wanted, given, tasks):
    chosen = choose_task(wanted, data(HALF, NUMBERS), TargetConfig(tasks=given))
    assert {name: part.name for part in chosen.parts for name in part.names} == tasks
    assert chosen.name == ("mixed" if len(set(tasks.values())) > 1 else tasks["y0"])


@pytest.mark.parametrize(
    ("wanted", "given", "message"),
    [
        ("regression", {"y0": "classification"}, r"task=regression contradicts dataset\.tasks, which has classification for 'y0'"),
        ("mixed", None, r"task=mixed needs dataset\.tasks, which says .* as in 'dataset\.tasks=\{"),
        ("auto", {"y1": "classification"}, r"'y1' has the value -1 in row 0"),
    ],
)
def test_tasks_that_columns_do_not_have(wanted, given, message):
    with pytest.raises(UserError, match=message):
        choose_task(wanted, data(HALF, NUMBERS), TargetConfig(tasks=given))


@pytest.mark.parametrize(
    ("given", "loss", "transforms"),
    [
        ({}, "l1", ["standardize", "standardize"]),
        ({"transform": "auto"}, "l1", ["quantile_normal", "standardize"]),
        ({"transform": "auto"}, "quantile", ["quantile_normal", "standardize"]),
        ({"transform": "auto"}, "mve", ["standardize", "standardize"]),
        ({"transform": "auto", "transforms": {"y0": "log10"}}, "l1", ["log10", "standardize"]),
        ({"transform": "quantile_normal", "transforms": {"y0": "standardize"}}, "l1", ["standardize", "quantile_normal"]),
    ],
)
@pytest.mark.parametrize("wanted", ["auto", "mixed"])
def test_skewed_targets_are_transformed(small_config, wanted, given, loss, transforms):
    """Whoever reads the checkpoint builds the same task from its configuration."""
    tail, tasks = np.exp(9 * np.linspace(-1, 1, COUNT)), {"y0": "regression", "y1": "regression", "y2": "classification"}
    loaded = data(tail, NUMBERS, HALF) if wanted == "mixed" else data(tail, NUMBERS)
    dataset = {**given, **({"tasks": tasks} if wanted == "mixed" else {}), "targets": None}
    config = small_config(task=wanted, dataset=dataset, training={"loss": loss})
    chosen = choose_task(wanted, loaded, config.dataset, loss)
    saved = settled(config, chosen)
    names, units = chosen.names, chosen.units
    for task in (chosen, build_task(chosen.name, names, units, 0, saved.dataset)):
        assert [*task.parts[0].transforms.names] == transforms


def test_a_part_with_one_class_is_told_of(caplog):
    labels = np.where(np.arange(COUNT) == 9, 0, HALF)
    choose_task("classification", data(labels))
    (message,) = caplog.messages
    assert message.startswith("The validation part has only the class 0 of 'y0': metrics that compare classes, such as ROC-AUC,")


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({"transforms": {"y0": "log10"}}, [HALF], r"dataset\.transforms names 'y0', which is learned as classes"),
        ({"sampling": "balanced"}, [NUMBERS], r"dataset\.sampling=balanced does not go with task=regression"),
        ({"sampling": "balanced"}, [HALF, HALF], r"dataset\.sampling=balanced does not go with 2 targets"),
    ],
)
def test_options_that_do_not_go_with_the_targets(small_config, changes, columns, message):
    loaded, config = data(*columns), small_config(dataset={**changes, "targets": None})
    with pytest.raises(UserError, match=message):
        check_options(choose_task("auto", loaded, config.dataset), config, loaded.molecules)
