import logging

import numpy as np
import pytest

from molgcn.data.splits.ordered import column_times, report_times
from molgcn.errors import UserError


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["2021", " 1999.5", "3e3", "-4"], [3, 1, 0, 2]),
        (["2021-03-04", "2021-03", "1999-12-31", "2021-03-04T12:30Z"], [2, 1, 0, 3]),
        (["2021-03-04 12:00:00+02:00", "2021-03-04 11:00:00", "2021-03-04T09:59:59Z", "0999-01-01"], [3, 2, 0, 1]),
    ],
)
def test_numbers_and_dates_sort(cells, order):
    assert np.argsort(column_times(cells, "when", range(4)), kind="stable").tolist() == order


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["2020", ""], "row 8 .*says ''; expected a number, as the first one is"),
        (["2020", "2021-01-01"], "row 8 .*says '2021-01-01'; expected a number"),
        (["2021-01-01", "soon"], "row 8 .*says 'soon'; expected an ISO date, as the first one is"),
        (["2021-01-01", "2020"], "row 8 .*says '2020'; expected an ISO date"),
        (["04.03.2021", "2020"], "row 5 .*says '04.03.2021'; expected a number or an ISO date"),
        (["nan", "2020"], "row 5 .*says 'nan'"),
        (["inf", "2020"], "row 5 .*says 'inf'"),
    ],
)
def test_what_is_no_time_is_named(cells, what):
    with pytest.raises(UserError, match=f"Column 'when', {what}"):
        column_times(cells, "when", np.array([5, 8]))


@pytest.mark.parametrize(
    ("cells", "split", "said"),
    [
        (
            ["2017", " 2018", "2015", "2019"],
            {"train": [0, 2], "val": [1], "test": [3]},
            "Column 'when': training 2015 to 2017, validation 2018, test 2019",
        ),
        (
            ["2021-03-04", "2021-03", "2022-01-01", "2022-05"],
            {"train": [0, 1, 3], "val": [], "test": [2]},
            "Column 'when': training 2021-03 to 2022-05, test 2022-01-01; 1 molecule with an older copy, by which both are placed",
        ),
    ],
)
def test_the_times_of_each_part_are_said(cells, split, said, caplog):
    caplog.set_level(logging.INFO)
    positions = {part: np.array(places, int) for part, places in split.items()}
    report_times(positions, column_times(cells, "when", range(len(cells))), cells, "when")
    assert caplog.messages == [said]
