import io
import sys
import zipfile

import pytest

from molgcn.data.formats import open_molecules
from molgcn.data.tables import read_columns
from molgcn.errors import UserError

COLUMNS = {"smiles": ["C", "CC", "O"], "y (uM)": [1.5, None, 0.1], "n": [1, 2, 10**15], "word": ["NA", 'a, "b"', "=1"]}
CELLS = [["C", "1.5", "1", "NA"], ["CC", "", "2", 'a, "b"'], ["O", "0.1", str(10**15), "=1"]]


def workbook(path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append([None, *COLUMNS])
    book.active.append([])
    for row in zip(*COLUMNS.values(), strict=True):
        book.active.append(["left out", *row])
        book.active.cell(book.active.max_row, 5).data_type = "s"  # no formula
    book.create_sheet("notes").append(["smiles"])
    book.save(path)


def parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    columns = COLUMNS | {"y (uM)": pyarrow.array(COLUMNS["y (uM)"], pyarrow.float32()), "__index_level_0__": [5, 6, 7]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)


WRITERS = {"x.xlsx": workbook, "x.parquet": parquet}


@pytest.mark.parametrize("name", WRITERS)
def test_prediction_and_training_read_the_same_cells(name, tmp_path):
    WRITERS[name](tmp_path / name)
    with open_molecules(tmp_path / name, "auto", ["smiles"]) as molecules:
        assert molecules.columns == [*COLUMNS]
        assert [record.cells for record in molecules.records] == CELLS
        assert 0 < molecules.text.position() <= molecules.text.size
    columns = read_columns(tmp_path / name, ["y (uM)", "smiles"])
    assert [*zip(columns["smiles"], columns["y (uM)"], strict=True)] == [(cells[0], cells[1]) for cells in CELLS]


@pytest.mark.parametrize("name", ["x.xlsx", "x.parquet"])
def test_tables_without_a_header_keep_the_places_of_all_columns(name, tmp_path):
    rows = [["C", None, 1.5], ["CC", 2.5, None], ["O", 3.5, 0.1]]
    if name == "x.xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in rows:
            book.active.append(row)
        book.save(tmp_path / name)
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(dict(zip("abc", zip(*rows, strict=True), strict=True))), tmp_path / name)
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    with open_molecules(tmp_path / name, "auto", ["0"], header=False) as molecules:
        assert molecules.columns == ["0", "1", "2"]
        assert [record.cells for record in molecules.records] == cells
    assert [*read_columns(tmp_path / name, ["2"], has_header=False)["2"]] == ["1.5", "", "0.1"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_from_standard_input(name, tmp_path, monkeypatch):
    WRITERS[name](tmp_path / name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe((tmp_path / name).read_bytes()))))
    with open_molecules(None, "csv", ["smiles"]) as molecules:
        assert [record.cells for record in molecules.records] == CELLS


class Pipe(io.BytesIO):
    def seekable(self):
        return False


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_tables(name, tmp_path):
    WRITERS[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=f"{name} is damaged: "):
        read_columns(tmp_path / name, ["smiles"])


def test_an_archive_is_no_workbook(tmp_path):
    pytest.importorskip("openpyxl")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x.csv", "smiles")
    with pytest.raises(UserError, match=r"x\.zip is a zip archive\. Unpack it"):
        read_columns(tmp_path / "x.zip", ["smiles"])


@pytest.mark.parametrize(("name", "package", "begin"), [("x.xlsx", "openpyxl", b"PK\x03\x04"), ("x.parquet", "pyarrow", b"PAR1")])
def test_packages_that_are_not_installed(name, package, begin, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(begin)
    with pytest.raises(UserError, match=rf"needs the package {package} .*pip install molgcn\[tables\]"):
        read_columns(tmp_path / name, ["smiles"])


@pytest.mark.parametrize("name", ["x.json", "x.mol2", "x.json.gz"])
def test_files_of_other_kinds(name, tmp_path):
    (tmp_path / name).write_text("smiles\nC\n")
    with pytest.raises(UserError, match=r"is of a kind that is not read\. Read are tables \(\.csv, \.tsv, \.xlsx, \.parquet\)"):
        read_columns(tmp_path / name, ["smiles"])
