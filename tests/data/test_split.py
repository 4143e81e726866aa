import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.split import (
    PARTS,
    check_split,
    column_split,
    load_split,
    random_split,
    rows_to_split,
    save_split,
    scaffold_split,
    split_sizes,
)
from molgcn.errors import UserError


def as_sets(split):
    return {part: set(split[part].tolist()) for part in PARTS}


@given(n=st.integers(10, 500), seed=st.integers(0, 2**31), val=st.floats(0.1, 0.4), test=st.floats(0.1, 0.4))
def test_random_split_covers_everything_once(n, seed, val, test):
    split = random_split(n, (1 - val - test, val, test), seed)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(n))
    assert [len(split[part]) for part in PARTS] == list(split_sizes(n, (1 - val - test, val, test)))
    assert all(np.all(np.diff(split[part]) > 0) for part in PARTS)


def test_random_split_is_the_seeds():
    first, again, other = random_split(100, seed=1), random_split(100, seed=1), random_split(100, seed=2)
    assert as_sets(first) == as_sets(again) != as_sets(other)
    assert random_split(20, seed=0)["test"].tolist() == [1, 15]  # the same on every machine


@pytest.mark.parametrize(("n", "counts"), [(100, (50, 10, 5)), (100, (80, 10, 10)), (10, (8, 1, 1)), (2000, (800, 100, 100))])
def test_counts_may_leave_molecules_out(n, counts):
    split = random_split(n, counts)
    assert [len(split[part]) for part in PARTS] == [*counts]


@pytest.mark.parametrize(("n", "fractions"), [(10, (0.8, 0.1, 0.1)), (457, (0.5, 0.3, 0.2)), (457, (300, 50, 7)), (12, (1, 1, 1))])
def test_without_repeats_a_split_is_a_cut_of_the_shuffle(n, fractions):
    order, ends = np.random.default_rng(7).permutation(n), np.cumsum(split_sizes(n, fractions))
    for groups in (None, np.arange(n), np.random.default_rng(0).permutation(n)):
        split = random_split(n, fractions, 7, groups)
        for part, indices in zip(PARTS, np.split(order, ends), strict=False):
            assert split[part].tolist() == sorted(indices.tolist())


@given(seed=st.integers(0, 2**31), largest=st.integers(1, 9), num_groups=st.integers(30, 90))
def test_groups_stay_together_and_sizes_follow(seed, largest, num_groups):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, largest + 1, num_groups)
    groups = rng.permutation(np.repeat(np.arange(num_groups), counts))
    split = random_split(len(groups), (0.6, 0.2, 0.2), seed, groups)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(len(groups)))
    assert sum(len(np.unique(groups[split[part]])) for part in PARTS) == num_groups
    wanted = split_sizes(len(groups), (0.6, 0.2, 0.2))
    assert max(abs(len(split[part]) - size) for part, size in zip(PARTS, wanted, strict=True)) < 2 * largest


@pytest.mark.parametrize(("counts", "sizes"), [((4, 4, 4), [4, 4, 4]), ((20,) * 5, [60, 20, 20]), ((97, 2, 1), [97, 2, 1])])
def test_a_few_large_groups_leave_no_part_empty(counts, sizes):
    split = random_split(sum(counts), (0.8, 0.1, 0.1), 0, np.repeat(np.arange(len(counts)), counts))
    assert sorted((len(split[part]) for part in PARTS), reverse=True) == sizes


@pytest.mark.parametrize("counts", [(12,), (6, 6)])
def test_fewer_groups_than_parts_are_an_error(counts):
    with pytest.raises(UserError, match=f"empty: 12 molecules are only {len(counts)} groups of copies"):
        random_split(12, (0.8, 0.1, 0.1), 0, np.repeat(np.arange(len(counts)), counts))


def test_a_group_that_fills_the_set_goes_to_training():
    groups = np.array([0] * 70 + [*range(1, 31)])
    split = random_split(100, (0.8, 0.1, 0.1), 0, groups)
    assert [len(split[part]) for part in PARTS] == [80, 10, 10]
    assert set(range(70)) <= set(split["train"].tolist())


@pytest.mark.parametrize(
    ("n", "fractions", "what"),
    [
        (1, (0.8, 0.1, 0.1), "1 molecules cannot be split"),
        (4, (0.8, 0.1, 0.1), "cannot be split"),
        (100, (0.9, 0.1, 0.0), "Every part"),
        (100, (90, 10, 10), "cannot be split"),
        (100, (0.8, 0.1), "three numbers"),
        (500, (80, 10, 10), r"sum to 100, but the set has 500 .*fractions: \[0.8,0.1,0.1\].*dataset.subset=100 "),
        (500, (8, 1, 1), r"sum to 10, but the set has 500 .*fractions: \[0.8,0.1,0.1\].*dataset.subset=10 "),
        (500, (79.5, 10.5, 10), "sum to 100. Give three fractions"),
        (500, (80.5, 10, 10), "whole numbers"),
        (100, (0.8, 0.1, 0.2), "sum to 1.1"),
        (100, (-0.1, 0.6, 0.5), "three numbers"),
        (100, (float("nan"), 0.6, 0.5), "three numbers"),
    ],
)
def test_impossible_sizes_are_errors(n, fractions, what):
    with pytest.raises(UserError, match=what):
        random_split(n, fractions)


def ring_molecules():
    rings = ["c1ccccc1", "C1CCCCC1", "C1CCCC1", "c1ccncc1", "c1ccoc1", "C1CCOC1", "C1CCNC1", "C1CC1", "C1CCC1", "c1cc[nH]c1"]
    return [ring + "C" * tail for ring in rings for tail in range(1 + 4 * (ring == "c1ccccc1"))] + ["C" * n for n in range(1, 7)]


def test_scaffolds_stay_together():
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    smiles = ring_molecules()
    split = scaffold_split(smiles, (0.6, 0.2, 0.2), seed=3)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(len(smiles)))
    of_part = {part: {MurckoScaffoldSmiles(smiles[i]) for i in split[part]} for part in PARTS}
    assert not of_part["train"] & of_part["val"]
    assert not of_part["train"] & of_part["test"]
    assert not of_part["val"] & of_part["test"]
    assert as_sets(split) == as_sets(scaffold_split(smiles, (0.6, 0.2, 0.2), seed=3))
    assert as_sets(split) != as_sets(scaffold_split(smiles, (0.6, 0.2, 0.2), seed=4))


def test_scaffolds_by_numbers_of_molecules_leave_the_rest_out():
    smiles = ring_molecules()
    split = scaffold_split(smiles, (8, 3, 3), seed=3)
    assert all(0 < len(split[part]) <= size for part, size in zip(PARTS, (8, 3, 3), strict=True))


def test_scaffolds_that_share_a_molecule_are_one():
    smiles = ring_molecules()
    without = scaffold_split(smiles, (0.6, 0.2, 0.2), seed=3)
    assert as_sets(scaffold_split(smiles, (0.6, 0.2, 0.2), seed=3, groups=np.arange(len(smiles)))) == as_sets(without)
    rings = [smiles.index(one) for one in ("C1CC1", "C1CCC1", "c1ccoc1")]
    groups = np.arange(len(smiles))
    groups[rings] = rings[0]
    joined = scaffold_split(smiles, (0.6, 0.2, 0.2), seed=3, groups=groups)
    assert len({part for part in PARTS if set(rings) & set(joined[part].tolist())}) == 1


def test_atom_maps_make_no_scaffolds_of_their_own():
    rings = ["[c:{}]1(C)[cH:{}][cH:2][cH:3][cH:4][cH:5]1", "[CH2:{}]1[CH:{}](C)[CH2:3]1", "[n:{}]1c(C)[cH:{}]ccc1"]
    smiles = [ring.format(number, number + 1) for ring in rings for number in (7, 8, 9)]
    split = scaffold_split(smiles, (0.34, 0.33, 0.33))
    assert sorted(split[part].tolist() for part in PARTS) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_too_few_scaffolds_are_an_error():
    with pytest.raises(UserError, match="different scaffolds"):
        scaffold_split(["C" * n for n in range(1, 20)])


def test_column_split_understands_the_usual_words():
    split = column_split(["train", "Valid", "test", "", "TRAIN ", "validation", None, float("nan"), "val", "training"])
    assert {part: split[part].tolist() for part in PARTS} == {"train": [0, 4, 9], "val": [1, 5, 8], "test": [2]}
    with pytest.raises(UserError, match=r"row 1 .* says 'holdout'"):
        column_split(["train", "holdout", "test"])
    skipped = ["train", "?", "val", "holdout", "test"]
    assert {part: one.tolist() for part, one in column_split(skipped, rows=[0, 2, 4]).items()} == {"train": [0], "val": [1], "test": [2]}
    with pytest.raises(UserError, match=r"row 3 .* says 'holdout'"):
        column_split(skipped, rows=[0, 2, 3, 4])
    with pytest.raises(UserError, match="no molecule in test"):
        column_split(["train", "val"])


def test_a_saved_split_is_found_again_by_rows(tmp_path):
    rows = np.array([2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
    split = random_split(10)
    save_split(tmp_path / "splits.json", split, rows)
    assert as_sets(rows_to_split(load_split(tmp_path / "splits.json"), rows, "x")) == as_sets(split)
    assert os.listdir(tmp_path) == ["splits.json"]
    shuffled = np.random.default_rng(0).permutation(10)
    found = rows_to_split(load_split(tmp_path / "splits.json"), rows[shuffled], "x")
    assert {part: set(rows[shuffled][found[part]].tolist()) for part in PARTS} == {part: set(rows[split[part]].tolist()) for part in PARTS}


def test_rows_that_were_skipped_are_left_out_and_counted(caplog):
    wanted = {"train": np.array([0, 1, 2]), "val": np.array([3]), "test": np.array([4])}
    split = rows_to_split(wanted, np.array([0, 2, 3, 4]), "a file")
    assert split["train"].tolist() == [0, 1]
    assert "1 rows that are not in the set" in caplog.text


@pytest.mark.parametrize(
    ("content", "what"),
    [("{", "not JSON"), ("[]", "does not name"), ('{"train": [1], "val": [2]}', "does not name"),
     ('{"train": ["a"], "val": [2], "test": [3]}', "whole numbers"), ('{"train": [1.5], "val": [2], "test": [3]}', "whole numbers"),
     ('{"train": 1, "val": [2], "test": [3]}', "whole numbers")],
)  # fmt: skip
def test_bad_split_files_are_named(tmp_path, content, what):
    path = tmp_path / "split.json"
    path.write_text(content)
    with pytest.raises(UserError, match=what) as error:
        load_split(path)
    assert str(path) in str(error.value)


def test_a_missing_split_file_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_split(tmp_path / "none.json")


def test_overlap_emptiness_and_range_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"more than once.*train and test"):
        check_split({"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([1])}, 5, "x")
    with pytest.raises(UserError, match="no molecule in val"):
        check_split({"train": np.array([0, 1]), "val": np.array([], int), "test": np.array([3])}, 5, "x")
    with pytest.raises(UserError, match="beyond the 3"):
        check_split({"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([3])}, 3, "x")
    path = tmp_path / "overlap.json"
    path.write_text(json.dumps({"train": [0, 1], "val": [1], "test": [2]}))
    with pytest.raises(UserError, match="more than once"):
        rows_to_split(load_split(path), np.arange(4), "x")
