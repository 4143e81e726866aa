import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.formats import open_molecules, unused
from molgcn.files.spreadsheet import inert
from molgcn.screening.output import open_table


def read(path, form="auto", smiles="smiles"):
    with open_molecules(path, form, [smiles]) as molecules:
        return molecules.columns, [(record.cells, record.molecule) for record in molecules.records]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "A.CSV", "my file, (v=2).csv"])
def test_tables(tmp_path, name):
    separator = "\t" if ".tsv" in name else ","
    data = f"\ufeffid{separator}SMILES\r\n1{separator}C\r\n\r\n2{separator}CC\r\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read(tmp_path / name, smiles="SMILES") == (["id", "SMILES"], [(["1", "C"], "C"), (["2", "CC"], "CC")])


def test_a_cell_may_be_long(tmp_path):
    cells = ["C", "0.125 " * 50_000]
    (tmp_path / "a.csv").write_text(f"smiles,spectrum\n{','.join(cells)}\n")
    assert read(tmp_path / "a.csv") == (["smiles", "spectrum"], [(cells, "C")])


@pytest.mark.parametrize("name", ["a.smi", "a.txt", "a.smiles", "a.smi.gz"])
@pytest.mark.parametrize("header", ["", "smiles zinc_id\n"])
def test_lists(tmp_path, name, header):
    data = f"{header}C  methane 1\n\n   \nCC\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    columns = ["smiles", "zinc_id" if header else "name"]
    assert read(tmp_path / name) == (columns, [(["C", "methane 1"], "C"), (["CC", ""], "CC")])


def test_gzip_is_known_by_its_bytes(tmp_path):
    (tmp_path / "a.smi").write_bytes(gzip.compress(b"C\n"))
    assert len(read(tmp_path / "a.smi")[1]) == 1


def test_fields_of_an_sdf_are_columns(tmp_path):
    text = "one\n\n\n  0\nM  END\n> 1 <a> (x)\n5\n\n>  <b>\nfirst\nsecond\n\n$$$$\r\ntwo\n\n\n  1\nM  END\n>  <c>\n\n$$$$\n\n"
    (tmp_path / "a.sdf").write_text(text)
    columns, records = read(tmp_path / "a.sdf")
    assert columns == ["smiles", "name", "a", "b", "c"]
    assert records == [
        (["", "one", "5", "first\nsecond", ""], "one\n\n\n  0\nM  END\n"),
        (["", "two", "", "", ""], "two\n\n\n  1\nM  END\n"),
    ]


FIELDS = [
    (">  <Ki (<10 nM)>  (1)\n5\n\n>  <IC50 (<10 nM)>  (1)\n7\n\n", {"Ki (<10 nM)": "5", "IC50 (<10 nM)": "7"}),
    (">  <1 > 2>  (1)\n5\n\n", {"1 > 2": "5"}),
    (">  <a>\n>10 uM <approximate>\n\n>  <b>\n> 10\n\n", {"a": ">10 uM <approximate>", "b": "> 10"}),
    ("> 25 <MELTING.POINT> (1) FROM ARCHIVES\n179.0\n\n><x>\n1\n", {"MELTING.POINT": "179.0", "x": "1"}),
    (">  <a>\n1\n\n2\n\n>  <>\n3\n\n", {"a": "1\n2", "": "3"}),
]


@pytest.mark.parametrize(("data", "expected"), FIELDS)
def test_names_and_values_of_sdf_fields_may_have_angle_brackets(tmp_path, data, expected):
    (tmp_path / "a.sdf").write_text(f"one\n\n\n  0\nM  END\n{data}$$$$\n")
    columns, records = read(tmp_path / "a.sdf")
    assert dict(zip(columns[2:], records[0][0][2:], strict=True)) == expected


def test_how_far_along_a_file_is(tmp_path):
    (tmp_path / "a.smi").write_text("CCO\n" * 100_000)
    with open_molecules(tmp_path / "a.smi", "auto", ["smiles"]) as molecules:
        assert molecules.text.size == 400_000
        next(molecules.records)
        assert 0 < molecules.text.position() < 100_000
        assert sum(1 for _ in molecules.records) == 99_999
        assert molecules.text.position() == 400_000


def test_unused_names():
    assert unused("a", ["b"]) == "a"
    assert unused("a", ["a", "a 2"]) == "a 3"


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"), max_size=9)


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), max_size=8))
def test_what_is_written_is_what_is_read(tmp_path_factory, rows):
    """Any text is read back as written, but for the apostrophe before a formula."""
    path = Path(tmp_path_factory.mktemp("tables")) / "a.csv"
    with open_table(path) as table:
        table.write([["smiles", "x"], *rows])
    assert [cells for cells, _ in read(path)[1]] == [[inert(cell) for cell in row] for row in rows]


def test_a_lone_carriage_return_ends_no_row(tmp_path):
    with open_table(tmp_path / "a.csv") as table:
        table.write([["smiles", "x"], ["C", "a\rb"], ["C", "a\r\nb"]])
    assert [cells[1] for cells, _ in read(tmp_path / "a.csv")[1]] == ["a\nb", "a\r\nb"]
