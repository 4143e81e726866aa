"""Texts of trees from strangers are checked before LightGBM reads them."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from molgcn.blending.text import check_text
from molgcn.blending.trees import SMALL, Trees
from molgcn.errors import UserError

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
SETTINGS = SMALL | {"num_trees": 3, "min_data_in_leaf": 5}


def fitted(num_classes=0, y=X[:, 0]):
    labels = y if not num_classes else np.digitize(y, [0.0, 1.0][: num_classes - 1]).astype(float)
    return Trees.fit(X, labels, num_classes, None, 0, SETTINGS).text


TEXT = fitted()


@pytest.mark.parametrize("num_classes", [0, 2, 3])
def test_what_lightgbm_writes_passes(num_classes):
    check_text(fitted(num_classes), max(num_classes, 1) if num_classes > 2 else 1)
    check_text(fitted(num_classes, np.zeros(60)), max(num_classes, 1) if num_classes > 2 else 1)  # trees of one leaf


def resized(text):
    """Return the text with the sizes of trees that it has."""
    starts = [found.start() for found in re.finditer(r"^Tree=", text, re.MULTILINE)]
    sizes = np.diff([*starts, text.index("\nend of trees") + 1])
    return re.sub("tree_sizes=.*", f"tree_sizes={' '.join(map(str, sizes))}", text)


@pytest.mark.parametrize(
    ("pattern", "replacement", "match"),
    [
        (r"left_child=\S+", "left_child=0", "tree 0 is damaged"),
        (r"left_child=\S+", "left_child=99", "tree 0 is damaged"),
        (r"right_child=\S+", "right_child=-99", "tree 0 is damaged"),
        (r"split_feature=\S+", "split_feature=9999", "tree 0 is damaged"),
        (r"split_feature=\S+", "split_feature=-1", "tree 0 is damaged"),
        (r"split_feature=\S+ ", "split_feature=", "split_feature is damaged"),
        (r"decision_type=\S+", "decision_type=1", "tree 0 is damaged"),
        (r"leaf_value=\S+ ", "leaf_value=", "tree 0 is damaged"),
        (r"num_leaves=\d+", "num_leaves=999999", "is damaged"),
        (r"num_leaves=\d+", "num_leaves=0", "is damaged"),
        (r"num_cat=0", "num_cat=1", "tree 0 is damaged"),
        (r"is_linear=0", "is_linear=1", "tree 0 is damaged"),
        (r"leaf_weight=\S+", "leaf_weight=5x", "tree 0 is damaged"),
        (r"internal_count=\S+ ", "internal_count=", "tree 0 is damaged"),
        (r"split_gain=\S+", "split_gain=", "tree 0 is damaged"),
        (r"shrinkage=\S+", "shrinkage=a", "tree 0 is damaged"),
        (r"leaf_value=\S+ ", "leaf_value=\n", "tree 0 is damaged"),
        (r"objective=\S+", "objective=", "does not name its objective"),
        (r"num_class=1", "num_class=1000000", "do not predict 1 values"),
        (r"max_feature_idx=3", "max_feature_idx=99", "does not name 100 features"),
    ],
)
def test_what_leads_out_of_its_arrays_is_refused(pattern, replacement, match):
    text, count = re.subn(pattern, replacement, TEXT, count=1)
    assert count == 1
    with pytest.raises(ValueError, match=match):
        check_text(resized(text), 1)
    with pytest.raises(UserError, match="cannot be used"):
        Trees(resized(text)).predict(X)


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="do not have the sizes"):
        check_text(re.sub(r"tree_sizes=\d+", "tree_sizes=99999999", TEXT), 1)


@settings(max_examples=60)
@given(st.data())
def test_damage_anywhere_is_refused_or_harmless(data):
    place = data.draw(st.integers(0, TEXT.index("end of trees")))
    text = TEXT[:place] + data.draw(st.text(max_size=3)) + TEXT[place + data.draw(st.integers(0, 9)) :]
    with suppress(UserError, ValueError):
        Trees(text).predict(X)
