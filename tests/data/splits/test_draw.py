"""Every split has the properties that all splits share, or the error that says why it cannot be drawn."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from split_sets import as_sets

from molgcn.data.config import CV_BY, DRAWN, DatasetConfig
from molgcn.data.identity import with_hashes
from molgcn.data.packed import PackedMolecules
from molgcn.data.sources.base import Source
from molgcn.data.splits.draw import draw_split, groups_of, make_split
from molgcn.data.splits.parts import PARTS, split_sizes
from molgcn.errors import UserError

RINGS = ["c1ccccc1", "C1CCCCC1", "C1CCCC1", "c1ccncc1", "c1ccoc1", "C1CC1", "C1CCC1"]
SMILES = [ring + tail for ring in RINGS for tail in ("", "C", "CC", "O", "CO", "CN", "CCO", "C(C)C")] + ["C" * n for n in range(1, 9)]
COLUMNS = {"year": [str(2000 + 7 * n % 9) for n in range(len(SMILES))], "batch": [f"b{n % 11}" for n in range(len(SMILES))]}
OF_COLUMNS = {"group": "batch", "time": "year"}
FRACTIONS = [(0.8, 0.1, 0.1), (0.6, 0.2, 0.2), (0.9, 0.1, 0), (0.85, 0, 0.15), (1, 0, 0)]


@pytest.fixture(scope="module")
def pool():
    targets = np.stack([np.arange(len(SMILES)) % 3, np.sin(np.arange(len(SMILES)))], axis=1)
    return with_hashes(PackedMolecules.from_smiles(SMILES, targets, features="general", num_workers=0, target_names=["kind", "y"]))


def source(column=lambda name: COLUMNS[name]):
    return Source("x.csv", "general", ("kind", "y"), ("", ""), {}, lambda: None, column=column)


def config(split, **options):
    chosen = {"split_column": OF_COLUMNS.get(split, "kind" if split == "stratified" else None)} | options
    return DatasetConfig(name="csv", path="x.csv", split=split, **chosen)


@pytest.mark.parametrize("split", DRAWN)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.lists(st.integers(0, len(SMILES) - 1), min_size=25, max_size=90),
    fractions=st.sampled_from(FRACTIONS),
    seed=st.integers(0, 2**32),
    copies=st.booleans(),
)
def test_parts_are_whole_groups_that_cover_the_set(pool, split, chosen, fractions, seed, copies):
    molecules, options = pool[np.array(chosen)], config(split, split_seed=seed, group_duplicates=copies)
    groups = groups_of(molecules, source(), options)
    groups = np.arange(len(chosen)) if groups is None else groups
    if split == "time":  # equal times stay together too, and a copy has the time of the oldest
        times = np.array(COLUMNS["year"], int)[molecules.rows]
        groups = np.array([times[groups == group].min() for group in groups])
    largest = np.unique(groups, return_counts=True)[1].max()
    sizes = split_sizes(len(chosen), fractions)
    try:
        drawn = draw_split(molecules, source(), options, fractions)
    except UserError:  # groups as large as a part may leave one empty
        if largest <= min(size for size in sizes if size):
            raise
        return
    assert sorted(np.concatenate([drawn[part] for part in PARTS]).tolist()) == list(range(len(chosen)))
    assert all(np.all(np.diff(drawn[part]) > 0) for part in PARTS)
    assert sum(len(np.unique(groups[drawn[part]])) for part in PARTS) == len(np.unique(groups))
    for part, size in zip(PARTS, sizes, strict=True):
        assert abs(len(drawn[part]) - size) <= (largest if largest > 1 else 0) * (2 if part == "train" else 1)
        assert (len(drawn[part]) > 0) == (size > 0)
    assert as_sets(draw_split(molecules, source(), options, fractions)) == as_sets(drawn)


@pytest.mark.parametrize("split", DRAWN)
def test_numbers_leave_the_rest_out(pool, split):
    drawn = draw_split(pool, source(), config(split, split_clusters=16), (30, 10, 9))
    together = np.concatenate([drawn[part] for part in PARTS])
    assert len(np.unique(together)) == len(together) < len(pool)
    for part, size in zip(PARTS, (30, 10, 9), strict=True):
        assert 0 < len(drawn[part]) <= size


@pytest.mark.parametrize("split", ["random", "stratified", "butina", "kmeans", "scaffold"])
def test_another_seed_is_another_split(pool, split):
    one, other = (as_sets(draw_split(pool, source(), config(split, split_seed=seed), (0.5, 0.25, 0.25))) for seed in (0, 1))
    assert one != other


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"split": "stratified", "split_column": None}, "Name it with dataset.split_column=: kind, y"),
        ({"split": "stratified", "split_column": "kinds"}, "kinds is not a target.*Did you mean 'kind'"),
        ({"split": "group", "split_column": None}, "split=group needs .*split_column.*split_column is not set"),
        ({"split": "time", "split_column": None}, "split=time needs .*split_column"),
        ({"split": "time", "split_column": "batch"}, r"Column 'batch', row 0 .*says 'b0'"),
        ({"split": "kmeans", "split_clusters": 500}, "split_clusters=500 are more than the 64 molecules"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_said(pool, options, what):
    with pytest.raises(UserError, match=what):
        make_split(pool, source(), config(**options))


def test_a_source_without_columns_has_none_to_group_by(pool):
    with pytest.raises(UserError, match=r"split=group needs a CSV file.*x\.csv has no columns"):
        make_split(pool, replace(source(), column=None), config("group"))


def test_a_single_target_needs_no_name(pool):
    one = replace(pool, targets=pool.targets[:, :1], target_names=("kind",), target_units=("",))
    wanted = make_split(pool, source(), config("stratified"))
    assert as_sets(make_split(one, source(), config("stratified", split_column=None))) == as_sets(wanted)


@pytest.mark.parametrize("by", CV_BY)
def test_folds_keep_the_groups_that_the_split_of_that_name_keeps(pool, by):
    options = config("cv", cv_by=by, folds=3, split_column=config(by).split_column, split_clusters=9)
    groups = groups_of(pool, source(), replace(options, split=by))
    assert groups is not None
    folds = [make_split(pool, source(), replace(options, fold=fold)) for fold in range(3)]
    assert sorted(np.concatenate([fold["test"] for fold in folds]).tolist()) == list(range(len(pool)))
    for fold in folds:
        assert sorted(np.concatenate([fold[part] for part in PARTS]).tolist()) == list(range(len(pool)))
        assert sum(len(np.unique(groups[fold[part]])) for part in PARTS) == len(np.unique(groups))
        if by == "stratified":
            assert np.ptp([(pool.targets[fold["test"], 0] == kind).sum() for kind in range(3)]) <= 1


@pytest.mark.parametrize("split", ["random", "stratified", "scaffold", "butina", "kmeans", "group", "cv"])
def test_each_repeat_is_another_split(pool, split):
    options = config(split, repeats=3, fold=0 if split == "cv" else None, split_clusters=16, split_fractions=(0.4, 0.3, 0.3))
    repeats = [make_split(pool, source(), replace(options, repeat=repeat)) for repeat in range(3)]
    assert len({tuple(one["test"].tolist()) for one in repeats}) > 1
    assert as_sets(repeats[0]) == as_sets(make_split(pool, source(), replace(options, repeats=1)))


def test_a_cross_validation_has_no_single_split(pool):
    with pytest.raises(UserError, match=r"name one fold, as in dataset\.fold=0"):
        make_split(pool, source(), config("cv"))
