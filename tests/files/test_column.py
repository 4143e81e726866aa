import math

import numpy as np

from molgcn.files.column import Column


def test_cells_have_the_digits_of_their_column():
    assert Column("a", np.array([1 / 3, math.nan, -math.inf, 2.0])).cells == ["0.3333333", "nan", "-inf", "2"]
    assert Column("a", np.array([1 / 3]), 9).cells == ["0.333333333"]
    assert Column("a", np.array(["{0, 1}", ""])).cells == ["{0, 1}", ""]
