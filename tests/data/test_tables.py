import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.strings import PackedStrings
from molgcn.data.tables import Columns, check_columns, column_names, read_columns
from molgcn.errors import UserError


def numbers(cells, path):
    return Columns(path, False, {"y": PackedStrings.from_strings(cells)}).numbers("y")


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_columns_come_as_written(tmp_path):
    path = write(tmp_path / "a b, (c)=d.csv", "smiles,y,note\nC,1.50,NA\nCC,,'x'\n")
    frame = read_columns(path, ["y", "smiles"])
    assert frame["smiles"] == ["C", "CC"]
    assert frame["y"] == ["1.50", ""]


def test_gz_tsv_and_byte_order_mark(tmp_path):
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write("smiles,y\nC,1\n")
    assert read_columns(tmp_path / "x.csv.gz", ["smiles"])["smiles"] == ["C"]
    for name in ("x.tsv", "Y.TSV"):
        assert column_names(write(tmp_path / name, "smiles\ty\nC\t1\n")) == ["smiles", "y"]
    assert column_names(write(tmp_path / "bom.csv", "smiles,y\nC,1\n", "utf-8-sig")) == ["smiles", "y"]


def test_wrong_column_names_the_nearest(tmp_path):
    path = write(tmp_path / "x.csv", "SMILES,logP\nC,1\n")
    with pytest.raises(UserError, match=r"no column 'logp' \(dataset.targets\).*Did you mean 'logP'"):
        read_columns(path, ["logp"])
    with pytest.raises(UserError, match=r"no column 'smiles' .*Did you mean 'Canonical_SMILES'"):
        read_columns(write(tmp_path / "y.csv", "Canonical_SMILES,y\nC,1\n"), ["smiles"])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "smiles;y\nC;1,5\nCC;-2\n", "semicolons, its numbers may have decimal commas"),
        ("x.csv", '"smiles";"y"\n"C";"1,5"\n"CC";-2\n', "semicolons"),
        ("x.csv", "smiles;pH 7, 25 C;y\nC;a, b;1,5\nCC;;-2e0\n", "semicolons"),
        ("x.csv", "smiles\ty\nC\t1.5\nCC\t-2\n", "tabs"),
        ("x.tsv", "smiles,y\nC,1.5\nCC,-2\n", "commas"),
    ],
)
def test_another_separator_is_read_and_said(tmp_path, caplog, name, text, said):
    path = write(tmp_path / name, text)
    with caplog.at_level("INFO"):
        columns = read_columns(path, ["y", "smiles"])
    assert columns["smiles"] == ["C", "CC"]
    assert columns.numbers("y").tolist() == [1.5, -2]
    assert {"smiles", "y"} <= set(column_names(path)) or "7, 25" in text  # without names, the promised separator comes first
    assert [f"{path}: cells are separated by {said}" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "smiles,y\nC,Active\nC,\nC,inactive\n",
            r"row 0 .*'Active' is not .*dataset\.labels=\{y: \{inactive: 0, Active: 1\}\}' \(task=classification\)",
        ),
        (
            "smiles,y\nC,no\nC,NA\nC,yes\nC,none\n",
            r"labels=\{y: \{no: 0, yes: 1, NA: null, none: null\}\}' \(task=classification\), where null is a missing value\.",
        ),
        ("smiles,y\nC,low\nC,mid\nC,high\n", r"dataset\.labels=\{y: \{high: 0, low: 1, mid: 2\}\}' \(task=multiclass\)"),
        ("smiles,y\nC,high\nC,1\n", r"'high' is not a number. Correct it.*It is the only such cell of 2\."),
        ("smiles,y\nC,1\nC,?\nC,?\n", r"row 1 .*'\?' is not a number.*It is the first of 2 such cells of 3\."),
    ],
)
def test_words_may_be_classes(tmp_path, text, what):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UserError, match=what):
        read_columns(tmp_path / "x.csv", ["y"]).numbers("y")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('smiles,y\nC,"1,5"\n', r"row 0 .*'1,5' is not a number. It has a decimal comma: write a point, or separate cells by semicolons"),
        ('smiles,y\nC,"1,234"\n', r"row 0 .*'1,234' is not a number. Write it without signs between thousands, or with a decimal point"),
        ('smiles,y\nC,"-1,234,567"\n', r"row 0 .*'-1,234,567' is not a number. Write it without signs between thousands"),
        ("smiles;y\nC;1,5\nC;1.234\n", r"row 1 .*'1.234' is not a number. Cells of this column have decimal commas"),
        ("smiles;y\nC;1.234,5\n", r"row 0 .*'1.234,5' is not a number"),
        ("smiles,y\nC,\u22121.5\n", r"row 0 .*is not a number. Its minus sign is not the '-' of numbers"),
    ],
)
def test_signs_that_may_mean_two_things_are_refused(tmp_path, text, what):
    with pytest.raises(UserError, match=what):
        read_columns(write(tmp_path / "x.csv", text), ["y"]).numbers("y")


@pytest.mark.parametrize("end", ["\r\n\n", "\r\r\n", "\n\n\n", "\r"])
def test_blank_lines_are_no_rows(tmp_path, end):
    path = write(tmp_path / "x.csv", f"{end}smiles,y{end}C,1{end}CC,high{end}")
    columns = read_columns(path, ["smiles", "y"])
    assert columns["smiles"] == ["C", "CC"]
    with pytest.raises(UserError, match=r"row 1 .*'high'"):
        columns.numbers("y")


@pytest.mark.parametrize("text", ["CCO,1.5\nCC,2\n", "a1;CCO;1,5\na2;CC;2\n", "CCO\nCC\n"])
def test_a_missing_header_is_named(tmp_path, text):
    with pytest.raises(UserError, match=r"no column 'y' .*It seems to have no header: its first line is '.*CCO"):
        check_columns(write(tmp_path / "x.csv", text), targets=["y"])
    with pytest.raises(UserError, match="Did you mean 'Y'"):
        check_columns(write(tmp_path / "x.csv", "C,N,Y\nCCO,1.5,2\n"), targets=["y"])


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["1.234", "950", "-12.500"], "'1.234' is read as 1.234. If it means 1234, "),
        (["", "950", "12,500", "NA"], "'12,500' is read as 12.500. If it means 12500, "),
        (["1.234", "9.501"], None),  # three decimals everywhere
        (["0,123", "950", "1,234"], None),
        (["1.23", "950", "1.234"], None),
        (["950", "3"], None),
    ],
)
def test_numbers_that_may_have_thousands_are_told_of(tmp_path, caplog, cells, what):
    path = write(tmp_path / "x.csv", "smiles;y\n" + "".join(f"C;{cell}\n" for cell in cells))
    read_columns(path, ["y"]).numbers("y")
    assert what in caplog.text if what else "thousands" not in caplog.text


def test_columns_may_be_named_by_numbers(tmp_path):
    path = write(tmp_path / "x.csv", "0,1\nC,2.5\n")
    assert read_columns(path, ["0", "1"]).numbers("1") == [2.5]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
@pytest.mark.parametrize("packed", [False, True])
def test_utf_16_is_named(tmp_path, encoding, packed):
    data = "smiles\ty\nC\t1\n".encode(encoding)
    (tmp_path / "x.csv").write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=r"is UTF-16 text.*Save it as 'CSV UTF-8'"):
        read_columns(tmp_path / "x.csv", ["y"])


def test_a_record_of_gigabytes_is_not_read(tmp_path):
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write("smiles,y\nC,1\n")
        file.writelines(["C" * 1_000_000] * 40)
    tracemalloc.start()
    with pytest.raises(UserError, match=r"x.csv.gz, row 1 \(counted from 0, without a header\), line 3: the record is longer than 16 MB"):
        read_columns(tmp_path / "x.csv.gz", ["smiles"])
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 60e6


@pytest.mark.parametrize(
    ("text", "what"), [("", "is empty"), ("smiles,y\n", "no rows"), ("smiles,y\nC,1\nCC,1,2,3\n", "line 3: 4 cells where the header has 2")]
)
def test_broken_files_are_named(tmp_path, text, what):
    path = write(tmp_path / "x.csv", text)
    with pytest.raises(UserError, match=what) as error:
        read_columns(path, ["smiles"])
    assert str(path) in str(error.value)


def test_missing_folder_binary_and_truncated_files(tmp_path):
    with pytest.raises(UserError, match=r"/none\.csv cannot be read: No such file"):  # in which folder, too
        column_names(Path("none.csv"))
    with pytest.raises(UserError, match="is a folder"):
        column_names(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"smiles,L\xf6slichkeit\nC,1\n")
    with pytest.raises(UserError, match=r"not UTF-8 text \(in line 1 or after it\).*reads 'smiles,Löslichkeit.*iconv"):
        read_columns(tmp_path / "x.csv", ["smiles"])
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"smiles,y\n" + b"C,1\n" * 1000)[:-20])
    with pytest.raises(UserError, match="damaged or cut off"):
        read_columns(tmp_path / "x.csv.gz", ["smiles"])
    (tmp_path / "y.csv.gz").write_bytes(b"smiles,y\nC,1\n")
    assert read_columns(tmp_path / "y.csv.gz", ["smiles"])["smiles"] == ["C"]  # gzip is known by its bytes


def test_a_cell_may_be_long(tmp_path):
    long = "0.125 " * 50_000
    path = write(tmp_path / "x.csv", f"smiles,spectrum\nC,{long}\n")
    assert read_columns(path, ["smiles", "spectrum"]) == {"smiles": ["C"], "spectrum": [long]}


def test_numbers_and_missing_cells(tmp_path):
    values = numbers(["1", " -2.5e3 ", "", "NA", "nan", "None"], tmp_path)
    np.testing.assert_array_equal(values, [1, -2500, np.nan, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["1", "high"], "row 1 .*'high' is not a number"),
        (["1", "1_5"], "row 1 .*'1_5' is not a number"),
        (["1", "inf"], "infinite"),
        (["1", "-4e38"], "row 1 .*'-4e38' is infinite"),
        (["", "NA"], "all 2 values"),
    ],
)
def test_bad_numbers_are_named(tmp_path, cells, what):
    with pytest.raises(UserError, match=what) as error:
        numbers(cells, tmp_path / "x.csv")
    assert "x.csv" in str(error.value)
    assert "'y'" in str(error.value)


LARGEST = float(np.finfo(np.float32).max)


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=1))
def test_numbers_reads_what_python_writes(values):
    assert numbers([repr(value) for value in values], None).tolist() == values
