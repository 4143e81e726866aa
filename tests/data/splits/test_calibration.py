import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_sets import set_of

from molgcn.data.splits.drawn import cut_calibration, random_split
from molgcn.data.splits.given import load_split, rows_to_split, save_split
from molgcn.data.splits.parts import CALIBRATION, PARTS
from molgcn.errors import UserError


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
