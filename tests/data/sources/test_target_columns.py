"""Targets that are text in a file are read as the configuration says."""

import numpy as np
import pytest
import torch

from molgcn.config.run import parse
from molgcn.data import PackedMolecules
from molgcn.data.config import DatasetConfig
from molgcn.data.label_columns import measured, split_labels, with_labels
from molgcn.data.load import load_dataset, load_molecules
from molgcn.data.loader import PackedLoader, PyGLoader
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.tasks.registry import build_task
from molgcn.training.train import train

ACTIVE = {"y": {"inactive": 0, "active": 1}}


def config_of(folder, table, **changes):
    path = folder / "mine.csv"
    path.write_text(table)
    return DatasetConfig(name="csv", path=str(path), targets=["y"], cache_dir=str(folder / "cache"), num_workers=0, **changes)


def test_words_become_classes(tmp_path):
    table = "smiles,y\nC,inactive\nCC, active \nCO,\nCN,active\n"
    molecules, *_ = load_molecules(config_of(tmp_path, table, labels=ACTIVE))
    assert molecules.targets[:, 0].tolist() == pytest.approx([0, 1, float("nan"), 1], nan_ok=True)
    other, *_ = load_molecules(config_of(tmp_path, table, labels={"y": {"active": 0, "inactive": 1}}))
    assert other.targets[0, 0] == 1  # not the set that was packed before


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"none": 0, "mild": 1, "NaN": 2}, [0, 1, 2, np.nan, 0]),
        ({"none": None, "mild": 1, "nan": 0}, [np.nan, 1, 0, np.nan, np.nan]),
    ],
)
def test_only_an_empty_cell_or_a_word_that_is_null_is_a_missing_class(tmp_path, labels, expected):
    given = parse(DatasetConfig, {"labels": {"y": labels}}, "dataset").labels
    molecules, *_ = load_molecules(config_of(tmp_path, "smiles,y\nC,none\nCC,mild\nCO,nan\nCN, \nCF,None\n", labels=given))
    assert molecules.targets[:, 0].tolist() == pytest.approx(expected, nan_ok=True)


def test_case_counts_where_both_are_named(tmp_path):
    table = "smiles,y\nC,TRUE\nCC,False\n"
    given = parse(DatasetConfig, {"labels": {"y": {True: 1, False: 0}}}, "dataset").labels  # as Hydra reads {y: {True: 1, False: 0}}
    assert load_molecules(config_of(tmp_path, table, labels=given))[0].targets[:, 0].tolist() == [1, 0]
    table = "smiles,y\nC,a\nCC,A\n"
    assert load_molecules(config_of(tmp_path, table, labels={"y": {"a": 0, "A": 1}}))[0].targets[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("cells", "changes", "message"),
    [
        ("inactive\nC,active", {}, r"'dataset\.labels=\{y: \{inactive: 0, active: 1\}\}' \(task=classification\)"),
        ("red light\nC,blue\nC,a:b", {}, r"dataset\.labels=\{y: \{\"a:b\": 0, blue: 1, \"red light\": 2\}\}' \(task=multiclass\)"),
        ("on\nC,off", {"labels": {"y": {"on": 1, "of": 0}}}, r"row 1 .*dataset\.labels has no class for 'off', only for on, of"),
        ("NA\nC,active", {"labels": ACTIVE}, r"row 0 .*no class for 'NA', .*Where NA is a missing value, say null for it"),
        ("\nC,", {"labels": {"y": {"on": 1, "of": 0}}}, r"all 2 values of column 'y' are missing"),
        ("1", {"tasks": {"Y": "regression"}}, r"dataset\.tasks names 'Y', which is not a target\. Did you mean 'y'"),
        ("1", {"units": {"z": "nM"}}, r"dataset\.units names 'z', which is not a target"),
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
        ({"labels": {"y": {"a": 0, "b": None}}}, r"\{y: \{a: 0, b: null\}\} is not valid: expected the classes 0, 1"),
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
    with pytest.raises(UserError, match=r"dataset\.units, labels, bounded and weights are for dataset=csv, not for the built-in molecules"):
        load_molecules(DatasetConfig(subset=10, targets=["logp"], units={"logp": "x"}))


@pytest.mark.parametrize(
    ("task", "columns"),
    [("classification", ["y probability on"]), ("multiclass", ["y probability off", "y probability on", "y probability 2"])],
)
def test_columns_of_predictions_carry_the_words(task, columns):
    given = TargetConfig(labels={"y": {"on": 1, "off": 0, "Off": 0}})
    assert build_task(task, ["y"], [""], {"classification": 2, "multiclass": 3}[task], given).columns == [columns]


BOUNDS = "smiles,y\nC,1\nCC, <10\nCO,>= 1e4\nCN,\nCCC,\u2264 2\nCCO,-3\n"


def test_cells_that_are_bounds(tmp_path, caplog):
    caplog.set_level("INFO")
    molecules, *_ = load_molecules(config_of(tmp_path, BOUNDS, bounded=True))
    assert molecules.targets[:, 0].tolist() == pytest.approx([1, 10, 1e4, float("nan"), 2, -3], nan_ok=True)
    assert molecules.bounds[:, 0].tolist() == [0, -1, 1, 0, -1, 0]
    assert "3 of 5 values of y are bounds; metrics, plots and reports count exact values only" in caplog.text
    assert measured(molecules).num_labels == [2]


def test_sets_without_bounds_have_no_array_of_them(tmp_path):
    table = "smiles,y\nC,1\nCC,2\n"
    plain, *_ = load_molecules(config_of(tmp_path, table))
    bounded, *_ = load_molecules(config_of(tmp_path, table, bounded=True))
    for molecules in (plain, bounded):
        assert molecules.bounds is None and molecules.weights is None
        assert molecules.labels is molecules.targets
    assert plain.content_hash() == bounded.content_hash()


def test_bounds_and_weights_belong_to_the_content_and_are_kept(tmp_path):
    table = BOUNDS.replace("smiles,y", "smiles,y,w").replace("\n", ",2\n").replace("w,2", "w")
    config = config_of(tmp_path, table, bounded=True, weights="w")
    packed, (cached, *_) = load_molecules(config)[0], load_molecules(config)
    assert cached.labels.shape == (6, 3)
    np.testing.assert_array_equal(packed.labels, cached.labels)
    assert packed.content_hash() == cached.content_hash() != with_labels(packed, None, packed.weights).content_hash()
    chosen = packed[[2, 0]]
    assert chosen.bounds[:, 0].tolist() == [1, 0] and chosen.weights[:, 0].tolist() == [2, 2]
    joined = PackedMolecules.concat([chosen, packed])
    np.testing.assert_array_equal(joined.bounds, np.concatenate([chosen.bounds, packed.bounds]))
    with pytest.raises(UserError, match="Sets with and without bounds cannot be joined"):
        PackedMolecules.concat([packed, with_labels(packed, None, packed.weights)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batches_hold_bounds_and_weights_behind_the_targets(dtype):
    targets = np.array([[1, 2], [3, np.nan], [5, 6]], dtype) + (1e6 if dtype == np.float64 else 0)
    molecules = with_labels(
        PackedMolecules.from_smiles(["C", "CC", "CO"], targets, num_workers=0), np.array([[0, 1], [-1, 0], [0, 0]]), np.arange(3)
    )
    expected = np.concatenate([targets, molecules.bounds, molecules.weights], axis=1)
    given = molecules.batch([2, 0]).targets
    assert given.dtype == {np.float32: torch.float32, np.float64: torch.float64}[dtype]
    np.testing.assert_array_equal(given, expected[[2, 0]])
    for loader in (PackedLoader, PyGLoader):
        (batch,) = loader(molecules, 3, shuffle=False)
        labels = split_labels(batch.targets, 2)
        there = molecules[batch.indices.numpy()]
        np.testing.assert_array_equal(labels.targets, there.targets)
        np.testing.assert_array_equal(labels.bounds, there.bounds)
        np.testing.assert_array_equal(labels.weights, there.weights)
        np.testing.assert_array_equal(labels.exact, measured(there).targets)


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ("smiles,y\nC,1\nC,<5\n", {}, r"row 1 .*'<5' is not a number\. Values that are only known .*dataset\.bounded=true"),
        ("smiles,y\nC,1\nC,<five\n", {"bounded": True}, r"row 1 .*'five' is not a number"),
        (
            "smiles,y,w\nC,1,1\nC,2,-0.5\n",
            {"weights": "w"},
            r"column 'w', row 1 .*'-0\.5' is not a weight\. Expected a number",
        ),
        ("smiles,y,w\nC,1,1\nC,2,\n", {"weights": "w"}, r"column 'w', row 1 .*'' is not a weight"),
        ("smiles,y,w\nC,1,1\nC,2,inf\n", {"weights": "w"}, r"column 'w', row 1 .*'inf' is infinite"),
        ("smiles,y,w\nC,1,1\n", {"weights": "W"}, r"no column 'W' \(dataset\.weights\)\. Did you mean 'w'"),
        ("smiles,y\nC,1\nC,<5\n", {"bounded": True, "duplicates": "mean"}, r"dataset\.duplicates=mean does not go with bounds"),
    ],
)
def test_bounds_and_weights_that_make_no_sense(tmp_path, table, changes, message):
    with pytest.raises(UserError, match=message):
        load_molecules(config_of(tmp_path, table, **changes))


def test_weights_are_divided_by_their_mean_over_the_training_part(tmp_path):
    table = "smiles,y,w,part\n" + "".join(
        f"{'C' * (row + 1)},{row},{row},{('train', 'train', 'train', 'train', 'val', 'test')[row]}\n" for row in range(6)
    )
    config = config_of(tmp_path, table, weights="w", split="column", split_column="part")
    data = load_dataset(config)
    assert data.molecules.weights[:, 0].tolist() == pytest.approx(np.arange(6) / 1.5)
    nothing = config_of(
        tmp_path, table.replace("train", "test").replace("0,0,test", "0,0,train"), weights="w", split="column", split_column="part"
    )
    with pytest.raises(UserError, match=r"All 1 molecules of the training part have the weight 0 .*row 0"):
        load_dataset(nothing)


def test_classes_have_no_bounds(tmp_path, small_config):
    rows = "".join(f"{'C' * (row + 1)},{'<1' if row == 3 else row % 2}\n" for row in range(20))
    (tmp_path / "mine.csv").write_text(f"smiles,y\n{rows}")
    dataset = {
        "name": "csv",
        "path": str(tmp_path / "mine.csv"),
        "targets": ["y"],
        "bounded": True,
        "cache_dir": str(tmp_path),
        "subset": None,
    }
    with pytest.raises(UserError, match="Target 'y' has bounds, which are not classes"):
        train(small_config(dataset={**dataset, "subset": None}), tmp_path / "run")
