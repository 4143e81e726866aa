"""Targets as text in a file, and what the configuration says of them."""

import pytest

from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_molecules
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.tasks.registry import build_task


def config_of(folder, table, **changes):
    path = folder / "mine.csv"
    path.write_text(table)
    return DatasetConfig(name="csv", path=str(path), targets=["y"], cache_dir=str(folder / "cache"), num_workers=0, **changes)


def test_words_become_classes(tmp_path):
    table = "smiles,y\nC,inactive\nCC, active \nCO,\nCN,active\n"
    molecules, *_ = load_molecules(config_of(tmp_path, table, labels={"y": {"inactive": 0, "active": 1}}))
    assert molecules.targets[:, 0].tolist() == pytest.approx([0, 1, float("nan"), 1], nan_ok=True)
    other, *_ = load_molecules(config_of(tmp_path, table, labels={"y": {"active": 0, "inactive": 1}}))
    assert other.targets[0, 0] == 1  # and not the set that was packed before


@pytest.mark.parametrize(
    ("cells", "changes", "message"),
    [
        ("inactive\nC,active", {}, r"'dataset\.labels=\{y: \{inactive: 0, active: 1\}\}' \(task=classification\)"),
        ("red light\nC,blue\nC,a:b", {}, r"dataset\.labels=\{y: \{a\\:b: 0, blue: 1, red light: 2\}\}' \(task=multiclass\)"),
        ("on\nC,off", {"labels": {"y": {"on": 1, "of": 0}}}, r"row 1 .*dataset\.labels has no class for 'off', only for on, of"),
        ("\nC,", {"labels": {"y": {"on": 1, "of": 0}}}, r"all 2 values of column 'y' are missing"),
        ("1", {"tasks": {"Y": "regression"}}, r"dataset\.tasks names 'Y', which is no target\. Did you mean 'y'"),
        ("1", {"units": {"z": "nM"}}, r"dataset\.units names 'z', which is no target"),
    ],
)
def test_mistakes_are_named(tmp_path, cells, changes, message):
    with pytest.raises(UserError, match=message):
        load_molecules(config_of(tmp_path, f"smiles,y\nC,{cells}\n", **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": {"y": "clasification"}}, r"dataset\.tasks=\{y: clasification\} is not an option\. Did you mean 'classification'"),
        ({"transforms": {"y": "log"}}, r"dataset\.transforms=\{y: log\} is not an option\..*log10"),
        ({"labels": {"y": {"a": 0, "b": 2}}}, r"dataset\.labels=\{y: \{a: 0, b: 2\}\} is not valid: expected the classes 0, 1"),
        ({"labels": {"y": {"a": 0}}}, r"expected the classes 0, 1"),
    ],
)
def test_options_are_checked_before_the_data(changes, message):
    with pytest.raises(UserError, match=message):
        TargetConfig(**changes)


def test_units_are_the_configuration_s_whatever_was_packed(tmp_path):
    table = "smiles,y\nC,1\nCC,2\n"
    assert load_molecules(config_of(tmp_path, table))[0].target_units == ("",)
    with_units, _, data_hash = load_molecules(config_of(tmp_path, table, units={"y": "nM"}))
    assert with_units.target_units == ("nM",)
    assert data_hash == load_molecules(config_of(tmp_path, table))[2]


def test_sets_with_units_of_their_own_take_no_others():
    with pytest.raises(UserError, match=r"dataset\.units and labels are for dataset=csv, not for the built-in molecules"):
        load_molecules(DatasetConfig(subset=10, targets=["logp"], units={"logp": "x"}))


@pytest.mark.parametrize(
    ("task", "columns"),
    [("classification", ["y probability on"]), ("multiclass", ["y probability off", "y probability on", "y probability 2"])],
)
def test_columns_of_predictions_carry_the_words(task, columns):
    given = TargetConfig(labels={"y": {"on": 1, "off": 0, "Off": 0}})
    assert build_task(task, ["y"], [""], {"classification": 2, "multiclass": 3}[task], given).columns == [columns]
