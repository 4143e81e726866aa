"""Read what callers give to estimators: molecules and targets."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_smiles(X: Any) -> np.ndarray:
    """Return the strings of a list, an array, a Series or a table, object [M, k] for k molecules in a row."""
    if isinstance(X, str):
        raise ValueError("X is a string. Expected a list of SMILES, as in [X].")
    if hasattr(X, "toarray"):
        raise TypeError("Sparse data was passed for X, but SMILES are required. Expected a list of strings.")
    values = np.asarray(X, dtype=object) if not hasattr(X, "to_numpy") else X.to_numpy(dtype=object)
    if values.ndim not in (1, 2):
        raise ValueError(f"X has the shape {values.shape}. Expected M SMILES, or a column of them for each molecule of a row.")
    if not values.size:
        raise ValueError(f"Found array with 0 sample(s) (shape={values.shape}) while a minimum of 1 is required.")
    for place, value in np.ndenumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"X[{', '.join(map(str, place))}] is {value!r} and no string. Expected SMILES.")
    return np.atleast_2d(values.T).T


def as_columns(y: Any) -> tuple[np.ndarray, bool]:
    """Return targets as a table [M, T], and whether they were one column without a second dimension."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    if values.ndim not in (1, 2):
        raise ValueError(f"y has the shape {values.shape}. Expected [M], or [M, T] for T targets.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)
