import logging

import pytest

from molgcn.data.config import DatasetConfig
from molgcn.data.sources import open_source
from molgcn.errors import UserError

ROWS = ["id,name,smiles,y,z,kind,w", *(f"{n},m{n},{'C' * n}O,{n / 2},{'' if n % 2 else -n},{'ab'[n % 2]},2" for n in range(1, 9))]


@pytest.fixture
def table(tmp_path):
    (tmp_path / "x.csv").write_text("\n".join(ROWS) + "\n")
    return str(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("y", "z", "w")),
        ({"weights": "w"}, ("y", "z")),
        ({"descriptors": ["z"], "weights": "w"}, ("y",)),
        ({"labels": {"kind": {"a": 0, "b": 1}}}, ("y", "z", "kind", "w")),
        ({"split": "group", "split_column": "w"}, ("y", "z")),
        ({"targets": ["z"]}, ("z",)),
    ],
)
def test_all_other_columns_of_numbers(table, options, expected):
    source = open_source(DatasetConfig(name="csv", path=table, **options))
    assert source.target_names == expected
    assert source.read().targets.shape == (8, len(expected))


def test_the_log_says_once_which(table, caplog):
    caplog.set_level(logging.INFO, "molgcn")
    for _ in range(2):
        open_source(DatasetConfig(name="csv", path=table))
    assert [text for text in caplog.messages if "learned: y, z, w; not id (numbers the rows), name, kind" in text] == caplog.messages[:1]
    assert len(caplog.messages) == 1


def test_the_separator_is_said_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "molgcn")
    (tmp_path / "x.csv").write_text("smiles;y;z\nC;1,250;2\nCC;1,5;1\nCCC;1,250;4,125\nCO;7;5\n")
    open_source(DatasetConfig(name="csv", path=str(tmp_path / "x.csv"))).read()
    assert caplog.text.count("separated by semicolons") == caplog.text.count("column 'z': '4,125' is read as 4.125") == 1


def test_properties_of_an_sdf(tmp_path):
    from rdkit import Chem

    with Chem.SDWriter(str(tmp_path / "x.sdf")) as writer:
        for n in range(1, 4):
            molecule = Chem.MolFromSmiles("C" * n)
            molecule.SetProp("y", str(n * n))
            molecule.SetProp("note", "text")
            writer.write(molecule)
    assert open_source(DatasetConfig(name="csv", path=str(tmp_path / "x.sdf"))).target_names == ("y",)


def test_numbers_of_rows_are_taken_where_nothing_else_is(tmp_path):
    (tmp_path / "x.csv").write_text("smiles,n\nC,1\nCC,2\n")
    assert open_source(DatasetConfig(name="csv", path=str(tmp_path / "x.csv"))).target_names == ("n",)


def test_no_column_of_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("smiles,name\nC,a\nCC,b\n")
    with pytest.raises(UserError, match=r"needs dataset\.targets.*It has the columns: name\. .*number them: 'dataset\.labels="):
        open_source(DatasetConfig(name="csv", path=str(tmp_path / "x.csv")))


@pytest.mark.parametrize("wrong", ["<5", "inf", "1.5 mM"])
def test_a_column_with_a_cell_that_is_no_number_is_named(tmp_path, caplog, wrong):
    rows = [f"m{n}x,{'C' * n},{wrong if n == 2 else n / 2},{n * n}" for n in range(1, 5)]
    (tmp_path / "x.csv").write_text("\n".join(["name,smiles,y,z", *rows]))
    (tmp_path / "y.csv").write_text("\n".join(["name,smiles,y", *(row.rpartition(",")[0] for row in rows)]))
    assert open_source(DatasetConfig(name="csv", path=str(tmp_path / "x.csv"))).target_names == ("z",)
    assert f"x.csv, column 'y', row 1 (counted from 0, without the header): '{wrong}'" in caplog.text and "'name'" not in caplog.text
    with pytest.raises(UserError, match=r"columns: name, y\. .*y\.csv, column 'y', row 1"):
        open_source(DatasetConfig(name="csv", path=str(tmp_path / "y.csv")))


def test_a_table_without_a_header(tmp_path):
    (tmp_path / "x.csv").write_text("\n".join(ROWS[1:]) + "\n")
    config = DatasetConfig(name="csv", path=str(tmp_path / "x.csv"), header=False, smiles=2, targets=[3])
    raw = open_source(config).read()
    assert list(raw.items) == [f"{'C' * n}O" for n in range(1, 9)]
    assert raw.targets[:, 0].tolist() == [n / 2 for n in range(1, 9)]
    (tmp_path / "y.csv").write_text("C,1\nCC,3\n")
    source = open_source(DatasetConfig(name="csv", path=str(tmp_path / "y.csv"), header=False))
    assert (source.target_names, list(source.read().items)) == (("1",), ["C", "CC"])
    with pytest.raises(UserError, match=r"say dataset\.header=false"):
        open_source(DatasetConfig(name="csv", path=str(tmp_path / "y.csv"), targets=["y"]))
    with pytest.raises(UserError, match=r"dataset\.header=False is not valid.*dataset=csv"):
        DatasetConfig(name="qm9", header=False)
