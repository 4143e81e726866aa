import math

import numpy as np

from molgcn.files.column import Column


def test_cells_have_the_digits_of_their_column():
    assert Column("a", np.array([1 / 3, math.nan, -math.inf, 2.0])).cells == ["0.3333333", "nan", "-inf", "2"]
    assert Column("a", np.array([1 / 3]), 9).cells == ["0.333333333"]
    assert Column("a", np.array(["{0, 1}", ""])).cells == ["{0, 1}", ""]


def test_probabilities_close_to_one_stay_apart():
    """In seven digits those of logits from 17 on would all be 1, and a table could not rank the likeliest molecules."""
    given = 1 / (1 + np.exp(-np.arange(-40, 33, 0.25)))
    cells = Column("a", given, are_probabilities=True).cells
    assert (np.diff([float(cell) for cell in cells]) > 0).all()
    assert Column("a", np.array([0.123456789, 0.99, 1.0, math.nan, 1 - 2e-9]), are_probabilities=True).cells == [
        *("0.1234568", "0.99", "1", "nan", "0.999999998"),
    ]
