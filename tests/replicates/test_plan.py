import pytest

from molgcn.errors import UserError
from molgcn.replicates.plan import first_training, plan


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"train": [0, 1], "test": [2]}')
    (tmp_path / "three.json").write_text('[{"train": [0]}, {"train": "0-1"}, {"train": [1]}]')


FILES = {"name": "csv", "path": "a.csv", "val_path": "b.csv", "test_path": "c.csv"}


@pytest.mark.parametrize(
    ("dataset", "names"),
    [
        ({}, []),
        ({"split": "cv"}, [f"fold_{fold}" for fold in range(5)]),
        ({"split": "cv", "folds": 3}, ["fold_0", "fold_1", "fold_2"]),
        ({"split": "cv", "folds": 2, "repeats": 2}, ["repeat_0/fold_0", "repeat_0/fold_1", "repeat_1/fold_0", "repeat_1/fold_1"]),
        ({"split": "cv", "folds": 2, "repeats": 2, "repeat": 1}, ["fold_0", "fold_1"]),
        ({"split": "cv", "folds": 2, "repeats": 2, "fold": 1}, ["repeat_0", "repeat_1"]),
        ({"split": "cv", "fold": 4}, []),
        ({"split": "scaffold", "repeats": 3}, ["repeat_0", "repeat_1", "repeat_2"]),
        ({"repeats": 3, "repeat": 0}, []),
        ({"split": "file", "split_file": ["a.json", "b.json"]}, ["repeat_0", "repeat_1"]),
        ({"split": "file", "split_file": ["a.json", "b.json"], "repeat": 1}, []),
        ({"split": "file", "split_file": ["a.json"]}, []),
        ({"split": "file", "split_file": "three.json"}, ["repeat_0", "repeat_1", "repeat_2"]),
        ({"split": "file", "split_file": ["a.json", "three.json"], "repeat": 3}, []),
    ],
)
def test_splits(dataset, names, small_config):
    planned = plan(small_config(dataset=dataset))
    assert [member.name for member in planned.members] == names
    assert planned.ensemble == (not names)
    assert all(plan(member.config).members == [] for member in planned.members)
    assert len({(member.config.dataset.repeat, member.config.dataset.fold) for member in planned.members}) == len(names)


def test_models_differ_by_their_seed(small_config):
    planned = plan(small_config(training={"ensemble": 3}, seed=7))
    assert planned.ensemble
    assert [(member.name, member.config.seed) for member in planned.members] == [("member_0", 7), ("member_1", 8), ("member_2", 9)]
    assert [member.overrides for member in planned.members] == [["seed=7"], ["seed=8"], ["seed=9"]]
    assert {member.config.training.ensemble for member in planned.members} == {1}


def test_each_split_has_an_ensemble(small_config):
    config = small_config(dataset={"split": "cv", "folds": 2}, training={"ensemble": 2})
    assert [[below.name for below in plan(member.config).members] for member in plan(config).members] == [["member_0", "member_1"]] * 2
    assert (first_training(config).dataset.fold, first_training(config).training.ensemble) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": {"folds": 5}}, "dataset.folds=5 goes with dataset.split=cv, and here dataset.split=random"),
        ({"dataset": {"fold": 0}}, "dataset.fold=0 goes with dataset.split=cv"),
        ({"dataset": {"split": "file", "split_file": "a.json", "repeats": 3}}, "training.ensemble=3"),
        ({"dataset": {"split": "time", "split_column": "year", "repeats": 3}}, "the parts by dataset.split=time are always the same"),
        ({"dataset": {**FILES, "repeats": 3}}, "the parts by files of their own are always the same"),
        ({"dataset": {**FILES, "split": "cv"}}, "dataset.val_path and dataset.test_path are parts of their own"),
        ({"dataset": {"split": "cv", "folds": 1}}, "dataset.folds=1 is not valid: expected at least 2"),
        ({"dataset": {"split": "cv", "fold": 5}}, "dataset.fold=5 is not valid: expected a number from 0 to 4"),
        ({"dataset": {"repeats": 0}}, "dataset.repeats=0 is not valid"),
        ({"dataset": {"split_file": ["a.json", "b.json"]}}, "several files, which go with dataset.split=file"),
        ({"dataset": {"split": "file", "split_file": "gone.json"}}, "split_file=gone.json cannot be read"),
        ({"dataset": {"repeats": 2, "repeat": 2}}, "dataset.repeat=2 is not valid: expected a number from 0 to 1"),
        ({"dataset": {"split": "cv", "cv_by": "scafold"}}, "Did you mean 'scaffold'"),
        ({"training": {"ensemble": 0}}, "training.ensemble=0 is not valid"),
        ({"training": {"ensemble": 2}, "seed": 2**32 - 1}, "seed=4294967296 is not valid"),
    ],
)
def test_keys_that_do_not_fit(changes, message, small_config):
    with pytest.raises(UserError, match=message):
        plan(small_config(**changes))
