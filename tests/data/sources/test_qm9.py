import logging
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.data.sources import qm9
from molgcn.errors import UserError

SMILES = ["C", "N", "O", "C#C", "C#N", "CC=O", "c1ccncc1", "CC(N)=O", "c1cc[nH]c1", "C1CC1F", "O=C1NC=CO1", "[O-]C(=O)C[NH3+]"]
UNCHARACTERIZED = {3, 8}


def list_text(numbers=UNCHARACTERIZED, footer=2):
    """Return a list like the published one: nine lines of header, five columns, a rule and an empty line at the end."""
    head = [
        "",
        "",
        "",
        "",
        "List of molecules",
        "different SMILES",
        "SMILES 1 of 2",
        "=====",
        "#   Index   GDB17 SMILES   B3LYP   Corina   D_IJ",
    ]
    rows = [f"{number:8d}     CC#N     CC#N     [C]C#N     {number}.036217" for number in sorted(numbers)]
    return "\n".join([*head, *rows, "=====", ""][: None if footer else -2])


def table_rows(count):
    values = np.random.default_rng(0).normal(size=(count, 19)).round(4)
    return values, [f"gdb_{i + 1}," + ",".join(map(str, row)) for i, row in enumerate(values)]


@pytest.fixture
def sdf_folder(tmp_path) -> Path:
    """Return a folder with raw files as torch_geometric.datasets.QM9 keeps them."""
    raw = tmp_path / "raw"
    raw.mkdir()
    with open(raw / "gdb9.sdf", "w") as file:
        for i, smiles in enumerate(SMILES):
            mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
            AllChem.EmbedMolecule(mol, randomSeed=7)
            mol.SetProp("_Name", f"gdb_{i + 1}")
            file.write(Chem.MolToMolBlock(mol) + "$$$$\n")
    _, rows = table_rows(len(SMILES))
    (raw / "gdb9.sdf.csv").write_text("\n".join([",".join(qm9.SDF_HEADER), *rows]) + "\n")
    (raw / "uncharacterized.txt").write_text(list_text())
    return raw


def load(path, tmp_path, **options):
    options = {"split_fractions": [6, 1, 1], **options}
    return load_dataset(DatasetConfig(name="qm9", path=None if path is None else str(path), cache_dir=str(tmp_path / "cache"), **options))


def test_the_sdf_is_pygs_qm9_but_for_the_perceived_columns(sdf_folder, tmp_path):
    from torch_geometric.datasets import QM9

    theirs = list(QM9(str(tmp_path)))
    targets = list(qm9.TARGETS)
    ours = load(sdf_folder / "gdb9.sdf", tmp_path, targets=targets).molecules
    assert len(ours) == len(theirs) == len(SMILES) - len(UNCHARACTERIZED)
    assert ours.rows.tolist() == [int(data.idx) for data in theirs]
    np.testing.assert_allclose(ours.targets, np.concatenate([data.y.numpy() for data in theirs]), rtol=1e-6)
    perceived = [6, 7, 8, 9]  # aromatic, sp, sp2, sp3: PyG reads them without perceiving them and finds zeros
    for mine, data in zip(ours.to_pyg(), theirs, strict=True):
        x = data.x.numpy()
        np.testing.assert_array_equal(np.delete(mine.x.numpy(), perceived, 1), np.delete(x, perceived, 1))
        assert not x[:, perceived].any()
        mine_edges = set(map(tuple, mine.edge_index.t().tolist()))
        assert mine_edges == set(map(tuple, data.edge_index.t().tolist()))
        assert mine.edge_index.shape == data.edge_index.shape
        bonds, kekule = (
            {tuple(e): row for e, row in zip(d.edge_index.T.tolist(), d.edge_attr.tolist(), strict=True)} for d in (mine, data)
        )
        for ends, row in bonds.items():
            assert row == kekule[ends] or (row == [0, 0, 0, 1] and kekule[ends][:2].count(1) == 1), ends  # PyG has the SDF's Kekulé form


def test_sdf_and_csv_give_the_same_molecules(sdf_folder, tmp_path):
    csv_path = tmp_path / "qm9.csv"
    _, rows = table_rows(len(SMILES))
    with open(csv_path, "w") as file:
        file.write(",".join(["mol_id", "smiles", *qm9.SDF_HEADER[1:]]) + "\n")
        for smiles, row in zip(SMILES, rows, strict=True):
            name, values = row.split(",", 1)
            file.write(f"{name},{smiles},{values}\n")
    (tmp_path / "uncharacterized.txt").write_text(list_text())
    a, b = load(sdf_folder, tmp_path).molecules, load(csv_path, tmp_path).molecules
    np.testing.assert_array_equal(a.targets, b.targets)
    np.testing.assert_array_equal(a.node_ptr, b.node_ptr)
    np.testing.assert_array_equal(a.node_features(), b.node_features())
    np.testing.assert_array_equal(a.neighbors, b.neighbors)
    assert [row.row for row in a.skipped] == [row.row for row in b.skipped] == [2, 7]
    assert "uncharacterised" in a.skipped[0].reason
    assert [Chem.CanonSmiles(text) for text in a.smiles] == [Chem.CanonSmiles(text) for text in b.smiles]


def test_units_and_conversion(sdf_folder, tmp_path):
    values, _ = table_rows(len(SMILES))
    kept = [i for i in range(len(SMILES)) if i + 1 not in UNCHARACTERIZED]
    molecules = load(sdf_folder, tmp_path, targets=["gap", "mu", "u0_atom", "A"]).molecules
    assert molecules.target_units == ("eV", "D", "eV", "GHz")
    column = [qm9.SDF_HEADER.index(name) - 1 for name in ("gap", "mu", "u0_atom", "A")]
    expected = values[kept][:, column] * [27.211386246, 1, 0.04336414, 1]
    np.testing.assert_allclose(molecules.targets, expected, rtol=1e-6)
    assert load(sdf_folder, tmp_path).molecules.target_names == ("gap",)


def test_the_molecule_that_fails_the_valence_check_is_kept_from_the_sdf(sdf_folder, tmp_path):
    """QM9's SDF lacks charges, so that [NH3+] is read as a neutral nitrogen with four bonds."""
    text = (sdf_folder / "gdb9.sdf").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("M  CHG")]
    (sdf_folder / "gdb9.sdf").write_text("\n".join(lines) + "\n")
    molecules = load(sdf_folder, tmp_path).molecules
    assert len(molecules) == len(SMILES) - len(UNCHARACTERIZED)
    glycine = molecules[len(molecules) - 1].node_features()
    assert glycine.shape == (10, 11)
    nitrogen = glycine[glycine[:, 5] == 7][0]
    assert nitrogen[10] == 3


def test_an_sdf_that_is_not_text_is_named_by_the_row(sdf_folder, tmp_path):
    content = (sdf_folder / "gdb9.sdf").read_bytes()
    (sdf_folder / "gdb9.sdf").write_bytes(content.replace(b"V2000", b"V2\xff00", 1))
    with pytest.raises(UserError, match=r"Row 0 of .*gdb9\.sdf .*not a mol block"):
        load(sdf_folder, tmp_path)


def test_without_the_list_all_rows_are_used_and_a_line_says_so(sdf_folder, tmp_path, caplog):
    (sdf_folder / "uncharacterized.txt").unlink()
    caplog.set_level(logging.WARNING)
    assert len(load(sdf_folder, tmp_path).molecules) == len(SMILES)
    assert "uncharacterized.txt" in caplog.text
    assert "All 12 rows" in caplog.text


def test_the_published_format_of_the_list_is_read(tmp_path):
    (tmp_path / "list").write_text(list_text({58, 133866}))
    assert qm9.read_uncharacterized(tmp_path / "list") == {58, 133866}
    with pytest.raises(qm9.WrongContentError, match="2 molecules where 3,054"):
        qm9._check_list(tmp_path / "list")


def test_downloaded_files_are_checked(sdf_folder):
    with pytest.raises(qm9.WrongContentError, match="12 molecules where 133,885"):
        qm9._check_sdf(sdf_folder / "gdb9.sdf")
    with pytest.raises(qm9.WrongContentError, match="12 rows"):
        qm9._check_table(sdf_folder / "gdb9.sdf.csv")


def test_the_whole_download_from_a_local_mirror(sdf_folder, tmp_path, monkeypatch):
    import http.server
    import threading
    import zipfile

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with zipfile.ZipFile(tmp_path / "qm9.zip", "w") as file:
        file.write(sdf_folder / "gdb9.sdf", "gdb9.sdf")
        file.write(sdf_folder / "gdb9.sdf.csv", "gdb9.sdf.csv")
    (tmp_path / "list.txt").write_text(list_text())
    handler = lambda *args: Quiet(*args, directory=str(tmp_path))  # noqa: E731

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(qm9, "ROWS", len(SMILES))
    monkeypatch.setattr(qm9, "UNCHARACTERIZED", len(UNCHARACTERIZED))
    monkeypatch.setattr(qm9, "ARCHIVE", qm9.RemoteFile("gdb9.archive", (f"{base}/none.zip", f"{base}/qm9.zip")))
    monkeypatch.setattr(qm9, "LIST", qm9.RemoteFile("uncharacterized.txt", (f"{base}/list.txt",), check=qm9._check_list))
    try:
        loaded = load(None, tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert len(loaded.molecules) == len(SMILES) - len(UNCHARACTERIZED)
    again = load(None, tmp_path)  # there is no server any more
    assert again.data_hash == loaded.data_hash


@pytest.mark.parametrize(("options", "what"), [({"targets": ["Gap"]}, "Did you mean 'gap'"), ({"targets": ["u"]}, "QM9 has no target 'u'")])
def test_unknown_targets(sdf_folder, tmp_path, options, what):
    with pytest.raises(UserError, match=what):
        load(sdf_folder, tmp_path, **options)


def test_paths_that_are_not_qm9(sdf_folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no gdb9\.sdf, qm9\.csv"):
        load(tmp_path / "empty", tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        load(tmp_path / "none.csv", tmp_path)
    (tmp_path / "other.csv").write_text("smiles,y\nC,1\n")
    with pytest.raises(UserError, match="no column 'gap'"):
        load(tmp_path / "other.csv", tmp_path)
    (sdf_folder / "gdb9.sdf.csv").write_text("mol_id,gap\ngdb_1,0.1\n")
    with pytest.raises(UserError, match="12 molecules but its table 1 rows"):
        load(sdf_folder, tmp_path)
    (tmp_path / "ids.csv").write_text("mol_id,smiles,gap\nfirst,C,0.1\n")
    (tmp_path / "uncharacterized.txt").write_text(list_text())
    with pytest.raises(UserError, match="not of the form gdb_123"):
        load(tmp_path / "ids.csv", tmp_path)


def test_real_qm9(real_data, tmp_path):
    loaded = load(real_data / "qm9" / "qm9_13000.csv", tmp_path, subset=3000, split_fractions=[0.8, 0.1, 0.1])
    assert len(loaded.molecules) == 3000
    assert loaded.molecules.table.shape[1] == 11
    assert loaded.molecules.targets.mean() == pytest.approx(6.84, abs=0.15)  # eV
