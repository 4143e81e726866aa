import csv

import pytest

from molgcn.data.load import write_skipped
from molgcn.data.rows import SkippedRow
from molgcn.files.spreadsheet import Writer, inert, write_csv

FORMULA = '=HYPERLINK("x")'


@pytest.mark.parametrize("cell", ["", "-1.5", "+1", "-1e-3", "-1,5", "-", "+", "=", "CC", "N=C", " -2 ", "-inf"])
def test_cells_that_are_left_alone(cell):
    assert inert(cell) == cell


@pytest.mark.parametrize(
    "cell",
    [
        FORMULA,
        "=1",
        "@SUM(A1)",
        "-2+cmd|' /C calc'!A0",
        "+A1",
        "+1_0",
        " =1",
        "\t=1",
        "\r=1",
        " \n@x",
        "\0=1",
        "\ufeff=1",
        "\uff1d1",
        "\uff0bA1",
    ],
)
def test_formulas(cell):
    assert inert(cell) == f"'{cell}"


def test_lists_of_rows_left_out_and_sweeps_are_inert(tmp_path):
    write_skipped(tmp_path / "skipped.csv", [SkippedRow(0, FORMULA, "@reason")])
    write_csv(tmp_path / "results.csv", [["job", FORMULA], ["0", "-0.5"]])
    with open(tmp_path / "skipped.csv", newline="") as file:
        assert list(csv.reader(file))[1] == ["0", f"'{FORMULA}", "'@reason"]
    with open(tmp_path / "results.csv", newline="") as file:
        assert list(csv.reader(file)) == [["job", f"'{FORMULA}"], ["0", "-0.5"]]


def test_a_lone_carriage_return_ends_no_row(tmp_path):
    with open(tmp_path / "a.csv", "w", newline="") as file:
        Writer(file).writerows([["a\rb", 1], ["=\rb", -2.5]])
    with open(tmp_path / "a.csv", newline="") as file:
        assert list(csv.reader(file)) == [["a\nb", "1"], ["'=\nb", "-2.5"]]
