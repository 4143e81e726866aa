from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_sets import as_sets, set_of

from molgcn.data.splits.drawn import cut_calibration, random_split, scaffold_split
from molgcn.data.splits.given import load_split, rows_to_split, save_split
from molgcn.data.splits.groups import join_groups, scaffold_groups
from molgcn.data.splits.parts import CALIBRATION, PARTS, split_sizes
from molgcn.errors import UserError


@given(n=st.integers(10, 500), seed=st.integers(0, 2**31), val=st.floats(0.1, 0.4), test=st.floats(0.1, 0.4))
def test_random_split_covers_everything_once(n, seed, val, test):
    split = random_split(n, (1 - val - test, val, test), seed)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(n))
    assert [len(split[part]) for part in PARTS] == list(split_sizes(n, (1 - val - test, val, test)))
    assert all(np.all(np.diff(split[part]) > 0) for part in PARTS)


def test_random_split_is_the_seeds():
    first, again, other = random_split(100, seed=1), random_split(100, seed=1), random_split(100, seed=2)
    assert as_sets(first) == as_sets(again) != as_sets(other)
    assert random_split(20, seed=0)["test"].tolist() == [1, 15]  # equal on every machine


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


def ring_molecules():
    rings = ["c1ccccc1", "C1CCCCC1", "C1CCCC1", "c1ccncc1", "c1ccoc1", "C1CCOC1", "C1CCNC1", "C1CC1", "C1CCC1", "c1cc[nH]c1"]
    return [ring + "C" * tail for ring in rings for tail in range(1 + 4 * (ring == "c1ccccc1"))] + ["C" * n for n in range(1, 7)]


def test_scaffolds_stay_together():
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    smiles = ring_molecules()
    split = scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=3)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(len(smiles)))
    of_part = {part: {MurckoScaffoldSmiles(smiles[i]) for i in split[part]} for part in PARTS}
    assert not of_part["train"] & of_part["val"]
    assert not of_part["train"] & of_part["test"]
    assert not of_part["val"] & of_part["test"]
    assert as_sets(split) == as_sets(scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=3))
    assert as_sets(split) != as_sets(scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=4))


def test_scaffolds_by_numbers_of_molecules_leave_the_rest_out():
    smiles = ring_molecules()
    split = scaffold_split(scaffold_groups(smiles), (8, 3, 3), seed=3)
    assert all(0 < len(split[part]) <= size for part, size in zip(PARTS, (8, 3, 3), strict=True))


def test_scaffolds_that_share_a_molecule_are_one():
    smiles = ring_molecules()
    without = scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=3)
    assert as_sets(scaffold_split(join_groups(scaffold_groups(smiles), np.arange(len(smiles))), (0.6, 0.2, 0.2), seed=3)) == as_sets(
        without
    )
    rings = [smiles.index(one) for one in ("C1CC1", "C1CCC1", "c1ccoc1")]
    groups = np.arange(len(smiles))
    groups[rings] = rings[0]
    joined = scaffold_split(join_groups(scaffold_groups(smiles), groups), (0.6, 0.2, 0.2), seed=3)
    assert len({part for part in PARTS if set(rings) & set(joined[part].tolist())}) == 1


def test_atom_maps_make_no_scaffolds_of_their_own():
    rings = ["[c:{}]1(C)[cH:{}][cH:2][cH:3][cH:4][cH:5]1", "[CH2:{}]1[CH:{}](C)[CH2:3]1", "[n:{}]1c(C)[cH:{}]ccc1"]
    smiles = [ring.format(number, number + 1) for ring in rings for number in (7, 8, 9)]
    split = scaffold_split(scaffold_groups(smiles), (0.34, 0.33, 0.33))
    assert sorted(split[part].tolist() for part in PARTS) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("size", [1, 3])
def test_seeds_draw_test_parts_that_share_no_more_than_chance(size):
    """Scaffolds of equal size are in another order with another seed, so that repeats test on other molecules."""
    tests = [set(scaffold_split(np.repeat(np.arange(300), size), seed=seed)["test"].tolist()) for seed in range(10)]
    shares = [len(one & other) / len(one) for one, other in combinations(tests, 2)]
    assert 0.07 < np.mean(shares) < 0.13 and max(shares) < 0.3


def test_too_few_scaffolds_are_an_error():
    with pytest.raises(UserError, match="different scaffold"):
        scaffold_split(scaffold_groups(["C" * n for n in range(1, 20)]))


@pytest.mark.parametrize(
    ("largest", "fractions", "sizes"),
    [(360, (0.6, 0.2, 0.2), [384, 128, 128]), (520, (0.6, 0.2, 0.2), [520, 60, 60]), (360, (300, 50, 50), [210, 35, 35])],
)
def test_what_a_huge_scaffold_leaves_is_shared_out(largest, fractions, sizes):
    """In FreeSolv the molecules without rings are more than half of the set."""
    scaffolds = np.concatenate([np.zeros(largest, int), np.arange(1, 641 - largest)])
    split = scaffold_split(scaffolds, fractions)
    assert [len(split[part]) for part in PARTS] == sizes


@settings(max_examples=60)
@given(st.integers(100, 300), st.floats(0.2, 0.9), st.integers(0, 99), st.integers(0, 4))
def test_it_comes_from_training_alone_and_keeps_copies_together(count, fraction, seed, copies):
    groups = np.random.default_rng(seed).integers(0, count, count) // (copies + 1)
    split = random_split(count, groups=groups)
    cut = cut_calibration(split, fraction, seed, groups)
    assert list(cut) == [*PARTS, CALIBRATION]
    assert all(cut[part] is split[part] for part in ("val", "test"))
    assert sorted([*cut["train"], *cut[CALIBRATION]]) == split["train"].tolist()
    assert all((np.diff(part) > 0).all() for part in cut.values())
    assert not np.isin(groups[cut["train"]], groups[cut[CALIBRATION]]).any()
    assert len(cut[CALIBRATION]) <= round(fraction * len(split["train"]))
    again = cut_calibration(split, fraction, seed, groups)
    assert all(np.array_equal(again[part], cut[part]) for part in cut)


def test_without_copies_the_share_is_exact_and_the_seed_s():
    split = random_split(1000)
    cuts = [cut_calibration(split, 0.25, seed)[CALIBRATION] for seed in (0, 1)]
    assert [len(cut) for cut in cuts] == [200, 200]
    assert not np.array_equal(*cuts)


@pytest.mark.parametrize(("fraction", "groups"), [(0.01, None), (0.99, None), (0.5, np.zeros(10, int))])
def test_parts_of_nothing_are_refused(fraction, groups):
    with pytest.raises(UserError, match=r"dataset\.calibration_fraction=.* Both need at least one"):
        cut_calibration(random_split(10), fraction, 0, groups)


def test_a_saved_split_names_it(tmp_path):
    rows = np.arange(20) * 3
    cut = cut_calibration(random_split(20), 0.25, 0)
    save_split(tmp_path / "splits.json", cut, rows)
    found = rows_to_split(load_split(tmp_path / "splits.json"), set_of(rows), "x", "x.csv")
    assert {part: found[part].tolist() for part in found} == {part: cut[part].tolist() for part in cut}


def test_it_may_not_overlap_with_another_part():
    split = {"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([3]), CALIBRATION: np.array([1])}
    with pytest.raises(UserError, match="train and calibration"):
        rows_to_split(split, set_of(range(4)), "x", "x.csv")
