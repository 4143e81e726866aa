"""Check LightGBM's text of trees before LightGBM reads it, whose reader trusts the numbers in it."""

from __future__ import annotations

import re

import numpy as np

_TREE = re.compile(r"^Tree=(\d+)$", re.MULTILINE)
_END = "\nend of trees"
_REAL, _WHOLE = r"-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan)", r"-?\d{1,7}"
_REALS, _WHOLES = (re.compile(f"{number}(?: {number})*") for number in (_REAL, _WHOLE))
_NUMERIC = {"0", "2", "4", "6", "8", "10"}  # types of decisions
_OF_SPLITS = ("split_gain", "threshold", "decision_type", "internal_value", "internal_weight", "internal_count")
_OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_OF_TREE = ("Tree", "num_leaves", "num_cat", "split_feature", "left_child", "right_child", "is_linear", "shrinkage")
_OBJECTIVE = re.compile(r"[a-z_0-9]+( [a-z_]+(:[-+.e\d]+)?)*")


def check_text(text: str, num_outputs: int) -> None:
    """Raise ValueError unless every tree of LightGBM's text, which predicts so many outputs, is of numeric splits within its arrays."""
    starts, end = [found.start() for found in _TREE.finditer(text)], text.find(_END) + 1
    if not text.startswith("tree\n") or not starts or end < starts[-1] or not text.isascii():
        raise ValueError("it is not LightGBM's text")
    header = _fields(text[: starts[0]])
    wanted = {"num_class": num_outputs, "num_tree_per_iteration": num_outputs}
    if any(header.get(key) != str(value) for key, value in wanted.items()) or len(starts) % num_outputs:
        raise ValueError(f"its trees do not predict {num_outputs} values")
    if not _OBJECTIVE.fullmatch(header.get("objective", "")):
        raise ValueError("it does not name its objective")
    features = _number(header, "max_feature_idx") + 1
    if len(header.get("feature_names", "").split(" ")) != features or len(header.get("feature_infos", "").split(" ")) != features:
        raise ValueError(f"it does not name {features} features")
    sizes = np.diff([*starts, end])
    if header.get("tree_sizes", "").split(" ") != [str(size) for size in sizes]:
        raise ValueError("its trees do not have the sizes that it states")
    for number, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        _check_tree(_fields(text[start : start + size]), number, features)


def _check_tree(tree: dict[str, str], number: int, features: int) -> None:
    leaves = _number(tree, "num_leaves")
    splits = leaves - 1
    places = np.arange(splits)
    left, right, split = (_numbers(tree, key, splits) for key in ("left_child", "right_child", "split_feature"))
    children = np.concatenate([left, right])
    inner, outer = children[children >= 0], ~children[children < 0]
    numeric = {*tree.get("decision_type", "").split()} <= _NUMERIC
    sizes = dict.fromkeys(_OF_SPLITS, splits) | dict.fromkeys(_OF_LEAVES, leaves)
    if splits == 0:
        sizes = {"leaf_value": leaves}  # of a tree of one leaf not all are written
    lengths = all(len(tree.get(key, "").split(" ")) == size for key, size in sizes.items())
    # LightGBM ends the process where it meets something else than a number.
    numbers = all(_REALS.fullmatch(value) for value in tree.values() if value)
    known = {*tree} <= {"", *_OF_SPLITS, *_OF_LEAVES, *_OF_TREE}
    right_kinds = tree.get("num_cat") == "0" and tree.get("is_linear", "0") == "0" and tree.get("Tree") == str(number)
    within = ((split >= 0) & (split < features)).all() and lengths and numbers and known
    ahead = all(((one < 0) | (one > places)).all() for one in (left, right))  # no circles
    complete = np.array_equal(np.sort(inner), places[1:]) and np.array_equal(np.sort(outer), np.arange(leaves) if splits else [])
    if not (leaves > 0 and right_kinds and numeric and within and ahead and complete):
        raise ValueError(f"its tree {number} is damaged")


def _fields(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (line.partition("=") for line in text.splitlines())}


def _number(fields: dict[str, str], key: str) -> int:
    if not re.fullmatch(r"\d{1,7}", value := fields.get(key, "")):
        raise ValueError(f"its {key} is not a number")
    return int(value)


def _numbers(tree: dict[str, str], key: str, count: int) -> np.ndarray:
    values = tree.get(key, "").split()
    if len(values) != count or (values and not _WHOLES.fullmatch(" ".join(values))):
        raise ValueError(f"its {key} is damaged")
    return np.array(values, np.int64)
