"""Predicting a table of molecules gives the right rows, columns and formats, and errors for mistakes."""

import bz2
import csv
import gzip
import lzma
import shutil

import numpy as np
import pytest
import torch
from predictions import LOGP, SMILES, TPSA, config, expected, rows_of, values_of
from rdkit import Chem

from molgcn.errors import UserError
from molgcn.predict import predict
from molgcn.screening.config import checkpoint_paths, one_checkpoint


@pytest.mark.parametrize("batch_size", [1, 4, 1024])
@pytest.mark.parametrize("backend", ["fused", "pyg"])
def test_a_table_keeps_its_rows_and_columns(trained_run, tmp_path, backend, batch_size):
    table = [["id", "smiles", "charge", "logp"], *([f"m{i}", text, "-1.5", "a,\nb"] for i, text in enumerate(SMILES))]
    with open(tmp_path / "new.csv", "w", newline="") as file:
        csv.writer(file).writerows(table)
    output = tmp_path / "out" / "predictions.csv"
    summary = predict(
        config(
            ckpt=str(trained_run.folder / "checkpoints" / "best.ckpt"),
            input=str(tmp_path / "new.csv"),
            output=str(output),
            batch_size=batch_size,
            backend={"name": backend},
        )
    )
    assert (summary.rows, summary.predicted) == (6, 6)
    with open(output, newline="") as file:
        written = list(csv.reader(file))
    assert written[0] == [*table[0], LOGP, TPSA]
    assert [row[:4] for row in written] == table
    np.testing.assert_allclose(values_of(rows_of(output)), expected(trained_run), rtol=2e-5, atol=2e-5)


def test_predictions_are_those_of_the_run(trained_run, tmp_path):
    own = rows_of(trained_run.folder / "predictions_test.csv")
    (tmp_path / "test.smi").write_text("".join(f"{row['smiles']}\tmolecule {i}\n" for i, row in enumerate(own)))
    predict(config(ckpt=str(trained_run.folder), input=str(tmp_path / "test.smi"), output=str(tmp_path / "p.csv")))
    rows = rows_of(tmp_path / "p.csv")
    assert [row["name"] for row in rows] == [f"molecule {i}" for i in range(len(own))]
    np.testing.assert_allclose(values_of(rows), values_of(own), rtol=1e-5, atol=1e-5)


def test_structures_are_predicted_as_their_smiles(trained_run, tmp_path):
    """Hydrogens may be written or not; names, all data fields and a canonical SMILES become columns."""
    with Chem.SDWriter(str(tmp_path / "m.sdf")) as writer:
        for i, text in enumerate(SMILES):
            mol = Chem.MolFromSmiles(text)
            mol = Chem.AddHs(mol) if i % 2 else mol
            mol.SetProp("_Name", f"m{i}")
            mol.SetProp("weight" if i < 3 else "smiles", f"-{i}\nand more")
            writer.write(mol)
    (tmp_path / "m.sdf.gz").write_bytes(gzip.compress((tmp_path / "m.sdf").read_bytes()))
    for name in ("m.sdf", "m.sdf.gz"):
        predict(config(ckpt=str(trained_run.folder), input=str(tmp_path / name), output=str(tmp_path / "p.csv.gz")))
        rows = rows_of(tmp_path / "p.csv.gz")
        assert list(rows[0]) == ["smiles 2", "name", "weight", "smiles", LOGP, TPSA]
        assert [row["name"] for row in rows] == [f"m{i}" for i in range(6)]
        assert [row["weight"] for row in rows] == ["'-0\nand more", "'-1\nand more", "'-2\nand more", "", "", ""]
        assert [Chem.CanonSmiles(row["smiles 2"]) for row in rows] == [Chem.CanonSmiles(text) for text in SMILES]
        np.testing.assert_allclose(values_of(rows), expected(trained_run), rtol=2e-5, atol=2e-5)


def test_how_checkpoints_are_named(tmp_path):
    odd = tmp_path / "a, b"
    odd.mkdir()
    assert checkpoint_paths(str(odd)) == [str(odd)]
    assert checkpoint_paths("a,b") == checkpoint_paths("[a, b]") == checkpoint_paths(["a", "b"]) == ["a", "b"]
    for nothing in (None, "", "[]", []):
        with pytest.raises(UserError, match="No checkpoint is named"):
            checkpoint_paths(nothing)
    assert one_checkpoint("[a]") == one_checkpoint(["a"]) == one_checkpoint("a") == "a"
    with pytest.raises(UserError, match="ckpt names 2 checkpoints, and this command takes one"):
        one_checkpoint("[a,b]")


def test_rows_that_are_not_molecules(trained_run, tmp_path, caplog):
    smiles = ["CCO", "C1CC", "CC", "", "[Pt]", "C"]
    (tmp_path / "new.csv").write_text("smiles,note\n" + "".join(f"{text},x\n" for text in smiles))
    values = {"ckpt": str(trained_run.folder), "input": str(tmp_path / "new.csv"), "output": str(tmp_path / "p.csv"), "batch_size": 2}
    with pytest.raises(UserError, match=r"Row 1 of .*new\.csv.*'C1CC'.*on_error=skip.*on_error=nan"):
        predict(config(**values))
    assert not (tmp_path / "p.csv").exists()
    predict(config(**values, on_error="nan"))
    rows = rows_of(tmp_path / "p.csv")
    assert [row["smiles"] for row in rows] == smiles
    assert [bool(row["error"]) for row in rows] == [False, True, False, True, True, False]
    assert "Pt" in rows[4]["error"]
    assert np.isnan(values_of([rows[i] for i in (1, 3, 4)])).all()
    good = values_of([rows[i] for i in (0, 2, 5)])
    np.testing.assert_allclose(good, expected(trained_run, ["CCO", "CC", "C"]), rtol=2e-5, atol=2e-5)
    predict(config(**values, on_error="skip"))
    rows = rows_of(tmp_path / "p.csv")
    assert [row["smiles"] for row in rows] == ["CCO", "CC", "C"]
    np.testing.assert_allclose(values_of(rows), good, rtol=1e-6)
    skipped = rows_of(tmp_path / "p_skipped.csv")
    assert f"3 rows left out; {tmp_path / 'p_skipped.csv'} says why" in caplog.text
    assert [(row["row"], row["molecule"]) for row in skipped] == [("1", "C1CC"), ("3", ""), ("4", "[Pt]")]


def test_each_output_has_a_list_of_its_own(trained_run, tmp_path):
    (tmp_path / "a.csv").write_text("smiles\nC\nC1\n")
    for name in ("a.v1.csv", "a.v2.csv", "a.v1.tsv.gz", "a_skipped.v1.csv"):
        predict(config(ckpt=str(trained_run.folder), input=str(tmp_path / "a.csv"), output=str(tmp_path / name), on_error="skip"))
    lists = {"a.v1_skipped.csv", "a.v2_skipped.csv", "a.v1_skipped.tsv.gz", "a_skipped.v1_skipped.csv"}
    assert lists < {path.name for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 9


def test_a_column_of_that_name_is_kept(trained_run, tmp_path):
    (tmp_path / "new.csv").write_text(f"smiles,{LOGP},error\nC,old,none\n")
    predict(config(ckpt=str(trained_run.folder), input=str(tmp_path / "new.csv"), output=str(tmp_path / "p.csv"), on_error="nan"))
    assert list(rows_of(tmp_path / "p.csv")[0]) == ["smiles", LOGP, "error", f"{LOGP} 2", TPSA, "error 2"]


@pytest.mark.parametrize(
    ("content", "options", "what"),
    [
        (b"smiles\nC\n", {"ckpt": None}, "No checkpoint is named"),
        (b"smiles\nC\n", {"ckpt": "nowhere.ckpt"}, r"There is no checkpoint nowhere.ckpt\. Expected the folder of a run"),
        (b"smiles\nC\n", {"ckpt": "."}, "holds neither checkpoints/best.ckpt nor"),
        (b"smiles\nC\n", {"ckpt": "new.csv"}, "new.csv is not a readable checkpoint"),
        (b"smiles\nC\n", {"input": None}, "No molecules are named"),
        (b"smiles\nC\n", {"input": "new.json"}, r"ends in \.csv.*format="),
        (b"smiles\nC\n", {"input": "new.csv", "smiles": ["a", "a"]}, r"no column 'a' \(smiles=a\)"),
        (b"smiles\nC\n", {"input": "none.csv"}, "none.csv cannot be read: No such file"),
        (b"smiles\nC\n", {"input": "none.smi"}, "none.smi cannot be read: No such file"),
        (b"smiles\nC\n", {"input": "none.sdf"}, "none.sdf cannot be read: No such file"),
        (b"smiles\nC\n", {"input": ".", "format": "csv"}, "is a folder"),
        (b"smiles\nC\n", {"input": ".", "format": "sdf"}, "is a folder"),
        (b"smiles\nC\n", {"smiles": "smile"}, "no column 'smile'.*Did you mean 'smiles'"),
        (b"smiles,smiles\nC,C\n", {}, "2 columns named 'smiles'"),
        (b"CCO\n", {}, "no column 'smiles'.*seems to have no header.*format=smi"),
        (b"CCO,1.5\n", {}, "no column 'smiles'.*seems to have no header: its first line is 'CCO,1.5'"),
        ("smiles\nC\n".encode("utf-16"), {}, "new.csv is UTF-16 text"),
        ("C\n".encode("utf-16"), {"format": "smi"}, "new.csv is UTF-16 text"),
        (b"", {}, "new.csv is empty"),
        (b"", {"format": "smi"}, "new.csv is empty"),
        (b"", {"format": "sdf"}, "new.csv has no rows"),
        (b"smiles\n", {}, "no rows"),
        (b"smiles,x\nC\n", {}, "line 2: 1 cells where the header has 2"),
        (b'smiles\nC\n"C\n', {}, r"new.csv, row 1 \(counted from 0, without a header\), line 3 is not a readable row"),
        (b"smiles\nC\n" + b"C" * 3000, {"max_record_mb": 0.002}, "row 1 .*line 3: the record is longer than 0.002 MB.*max_record_mb="),
        (b'smiles\nC\n"' + b"C\n" * 3000, {"max_record_mb": 0.002}, "row 1 .*line 3: the record is longer.*quotation mark"),
        (
            gzip.compress(b"C\n" + b"C" * 3000, mtime=0),
            {"format": "smi", "max_record_mb": 0.002},
            "line 2: the record is longer than 0.002 MB",
        ),
        (b"\n\nM  END\n$$$$\n" + b"C\n" * 3000, {"format": "sdf", "max_record_mb": 0.002}, "new.csv, row 1 .*line 5: the record is longer"),
        (b"smiles\nC\n", {"max_record_mb": 0}, "max_record_mb=0 is not valid"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", {}, "new.csv is not UTF-8 text"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", {}, r"new.csv is an old Excel workbook \(.xls\)\. Save it as \.xlsx"),
        (bz2.compress(b"smiles\nC\n"), {}, "new.csv is compressed by bzip2"),
        (lzma.compress(b"smiles\nC\n"), {}, "new.csv is compressed by xz"),
        (b"smiles\nC\n\xb5\n", {}, "not UTF-8 text.*iconv"),
        (gzip.compress(b"smiles\n" + b"C\n" * 99, mtime=0)[:-12], {}, "new.csv is damaged or cut off"),
        (b"\x1f\x8bnot gzip at all", {}, "new.csv is damaged or cut off"),
        (b"smiles\nC\n", {"format": "sdf"}, "not a mol block"),
        (b"smiles\nC1\nC(\n", {"on_error": "skip"}, r"None of the 2 rows of new.csv can be predicted; the first, row 0 \('C1'\)"),
        (b"smiles\nC1\n", {"on_error": "nan"}, "None of the 1 row "),
        (b"smiles\nC\n", {"output": "new.csv"}, "would replace a file that is read"),
        (b"smiles\nC\n", {"output": "."}, "is a folder"),
        (b"smiles\nC\n", {"output": "p.csv", "input": "p_skipped.csv", "on_error": "skip"}, "p_skipped.csv, which is"),
        (b"smiles\nC\n", {"output": "p.parquet"}, "ends in .csv, .tsv"),
        (b"smiles\nC\n", {"output": "new.csv/p.csv"}, "cannot be written"),
        (b"smiles\nC\n", {"output": "/proc/p.csv"}, "cannot be written"),
        (b"smiles\nC\n", {"output": "/dev/full"}, "cannot be written: No space left"),
        (b"smiles\nC\n", {"device": "tpu9"}, "device=tpu9 is not known"),
        (b"smiles\nC\n", {"device": "cuda:99"}, "torch sees"),
        (b"smiles\nC\n", {"batch_size": 0}, "batch_size=0"),
        (b"smiles\nC\n", {"num_workers": -1}, "num_workers=-1 is negative"),
    ],
)
def test_mistakes_are_one_paragraph(trained_run, tmp_path, monkeypatch, content, options, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_bytes(content)
    with pytest.raises(UserError, match=what) as error:
        predict(config(**{"ckpt": str(trained_run.folder), "input": "new.csv", **options}))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
    assert (tmp_path / "new.csv").read_bytes() == content


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("id;structure\na,b;CCO\n", {}),
        ("structure\tsmiles\r\n\nCCO\tx\r\n\n", {}),
        ("smiles\nCCO\n", {}),
        ("smiles,0\nx,CCO\n", {"smiles": 0}),
        ("structure,smiles\nx,CCO\n", {"smiles": "smiles"}),
    ],
)
def test_the_column_of_smiles_is_the_runs_own_where_there_is_one(trained_run, tmp_path, text, options):
    """The run's column is `structure`, and the header determines the separator."""
    content = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)
    content["molgcn"]["config"]["dataset"]["smiles"] = "structure"
    torch.save(content, tmp_path / "best.ckpt")
    (tmp_path / "new.csv").write_bytes(text.encode())
    files = {"ckpt": str(tmp_path / "best.ckpt"), "input": str(tmp_path / "new.csv"), "output": str(tmp_path / "p.csv")}
    predict(config(**files, **options))
    np.testing.assert_allclose(values_of(rows_of(tmp_path / "p.csv")), expected(trained_run, ["CCO"]), rtol=2e-5, atol=2e-5)


def test_the_files_of_a_run_stay(trained_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained_run.folder, folder)
    (tmp_path / "new.smi").write_text("C\n")
    before = (folder / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match=r"metrics\.csv would replace a file that the run in .*run wrote"):
        predict(config(ckpt=str(folder), input=str(tmp_path / "new.smi"), output=str(folder / "metrics.csv")))
    assert (folder / "metrics.csv").read_bytes() == before
    predict(config(ckpt=str(folder), input=str(tmp_path / "new.smi"), output=str(folder / "p.csv")))


def test_what_was_there_survives_a_failure(trained_run, tmp_path):
    (tmp_path / "p.csv").write_text("mine")
    (tmp_path / "new.smi").write_text("C\n" * 3 + "C1\n")
    with pytest.raises(UserError, match="Row 3"):
        predict(config(ckpt=str(trained_run.folder), input=str(tmp_path / "new.smi"), output=str(tmp_path / "p.csv"), batch_size=1))
    assert (tmp_path / "p.csv").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


def test_molecules_unlike_the_training_are_counted_in_one_line(trained_run, tmp_path, caplog):
    """Such molecules get their predictions as before; worker processes count them."""
    lines = ["C", "CCO.CO", "[NH4+].[Cl-]", "CCCO", "CC" * 8, "CCCO"]
    (tmp_path / "library.smi").write_text("".join(f"{line}\n" for line in lines))
    options = {"ckpt": str(trained_run.folder), "input": str(tmp_path / "library.smi"), "output": str(tmp_path / "p.csv")}
    predict(config(**options, on_error="nan", num_workers=1, batch_size=2))
    assert [row["smiles"] for row in rows_of(tmp_path / "p.csv")] == lines
    warnings = [record.message for record in caplog.records if "extrapolations" in record.message]
    assert warnings == [
        f"{tmp_path / 'library.smi'} has molecules unlike the training molecules: 1 of several fragments (salts, mixtures), 2 outside the "
        "training molecules' 4 to 9 heavy atoms; their predictions are extrapolations"
    ]


def test_nothing_is_said_of_molecules_like_those_of_the_training(trained_run, tmp_path, caplog):
    (tmp_path / "library.smi").write_text("CCCO\nCCCCN\n")
    predict(config(ckpt=str(trained_run.folder), input=str(tmp_path / "library.smi"), output=str(tmp_path / "p.csv")))
    assert "extrapolations" not in caplog.text


@pytest.mark.parametrize("smiles", ["CCO", "C(=O)O", "[NH4+]"])
def test_one_molecule_is_printed(trained_run, tmp_path, monkeypatch, capsys, smiles):
    monkeypatch.chdir(tmp_path)
    summary = predict(config(ckpt=str(trained_run.folder), molecule=smiles))
    assert (summary.rows, summary.predicted) == (1, 1)
    cells = [[cell.strip() for cell in line.split("\u2502")[1:3]] for line in capsys.readouterr().out.splitlines() if "\u2502" in line]
    assert [name for name, _ in cells] == ["smiles", LOGP, TPSA]
    assert cells[0][1] == smiles
    np.testing.assert_allclose([float(value) for _, value in cells[1:]], expected(trained_run, [smiles])[0], rtol=2e-5, atol=2e-5)
    assert list(tmp_path.iterdir()) == []


def test_one_molecule_is_written_where_a_file_is_named(trained_run, tmp_path):
    predict(config(ckpt=str(trained_run.folder), molecule="CCO", output=str(tmp_path / "p.csv")))
    (row,) = rows_of(tmp_path / "p.csv")
    assert list(row) == ["smiles", LOGP, TPSA]


def test_one_molecule_that_is_none(trained_run):
    with pytest.raises(UserError, match=r"molecule=C1CC cannot be predicted: it is not a SMILES"):
        predict(config(ckpt=str(trained_run.folder), molecule="C1CC"))
    with pytest.raises(UserError, match=r"input=a.csv and molecule=C are both given"):
        predict(config(ckpt=str(trained_run.folder), input="a.csv", molecule="C"))
