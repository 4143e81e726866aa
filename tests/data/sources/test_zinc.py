import hashlib
import http.server
import threading

import numpy as np
import pytest

from molgcn.data import PackedMolecules
from molgcn.data.config import DatasetConfig
from molgcn.data.labels import penalized_logp
from molgcn.data.load import load_dataset
from molgcn.data.sources import zinc
from molgcn.errors import UserError

CORES = ["c1ccccc1", "c1ccncc1", "C1CCNCC1", "c1cc[nH]c1", "C1CCCC1"]
SMILES = [f"{core}{'C' * tail}O" for tail in range(6) for core in CORES]


def load(path, tmp_path, **options):
    options = {"split": "benchmark", **options}
    return load_dataset(DatasetConfig(name="zinc", path=None if path is None else str(path), cache_dir=str(tmp_path / "cache"), **options))


def rows_of(loaded):
    return {part: loaded.molecules.rows[indices].tolist() for part, indices in loaded.splits.items()}


@pytest.fixture
def three_lists(tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    for name, lines in (("train", SMILES[:20]), ("valid", SMILES[20:25]), ("test", SMILES[25:])):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    for name, numbers in (("train", "7,3,11"), ("val", "4,0"), ("test", "1")):
        (folder / f"{name}.index").write_text(numbers + "\n")
    return folder


def test_the_three_lists_are_the_split(three_lists, tmp_path):
    loaded = load(three_lists, tmp_path)
    assert rows_of(loaded) == {"train": list(range(20)), "val": list(range(20, 25)), "test": list(range(25, 30))}
    assert list(loaded.molecules.smiles) == SMILES
    assert loaded.molecules.target_names == ("penalized_logp",)
    assert loaded.molecules.features == "zinc"
    assert loaded.molecules.num_features == 28


def test_12k_are_the_lines_of_the_index_files(three_lists, tmp_path):
    loaded = load(three_lists, tmp_path, subset="12k")
    assert rows_of(loaded) == {"train": [3, 7, 11], "val": [20, 24], "test": [26]}
    assert loaded.molecules.num_rows == 30
    assert list(loaded.molecules.smiles) == [SMILES[i] for i in (3, 7, 11, 20, 24, 26)]


@pytest.mark.parametrize("features", ["zinc", "general", "qm9", "qm9_charge"])
def test_labels_are_those_of_the_heavy_atoms(three_lists, tmp_path, features):
    from rdkit import Chem

    molecules = load(three_lists, tmp_path, features=features).molecules
    expected = [penalized_logp(Chem.MolFromSmiles(text)) for text in SMILES]
    np.testing.assert_allclose(molecules.targets[:, 0], expected, rtol=1e-6)


@pytest.fixture
def one_list(tmp_path, monkeypatch):
    monkeypatch.setattr(zinc, "STAND_IN_TRAIN", 12)
    monkeypatch.setattr(zinc, "STAND_IN_VAL", 4)
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "zinc_30.smi").write_text("\n".join(f"{text} name{i}" for i, text in enumerate(SMILES)) + "\n")
    (folder / "zinc12k_val.index").write_text("20,3,8")
    return folder


@pytest.mark.parametrize("as_file", [True, False])
def test_the_stand_in_tests_on_the_index_and_draws_the_rest(one_list, tmp_path, as_file):
    path = one_list / "zinc_30.smi" if as_file else one_list
    rows = rows_of(load(path, tmp_path, subset="12k"))
    assert rows["test"] == [3, 8, 20]
    assert (len(rows["train"]), len(rows["val"])) == (12, 4)
    assert len({*rows["train"], *rows["val"], *rows["test"]}) == 19
    assert rows == rows_of(load(path, tmp_path, subset="12k"))
    assert rows["val"] != rows_of(load(path, tmp_path, subset="12k", split_seed=1))["val"]
    everything = rows_of(load(path, tmp_path))
    assert len(everything["train"]) == 30 - 3 - 4
    assert everything["val"] == rows["val"]


def test_the_index_file_can_be_named(one_list, tmp_path):
    (tmp_path / "mine.index").write_text("0,1")
    loaded = load(one_list, tmp_path, split_file=str(tmp_path / "mine.index"))
    assert rows_of(loaded)["test"] == [0, 1]


def test_random_split_of_one_list(one_list, tmp_path):
    loaded = load(one_list, tmp_path, split="random")
    assert len(loaded.molecules) == 30
    assert len(loaded.splits["train"]) == 24
    assert len(load(one_list, tmp_path, split="random", subset=20).molecules) == 20


def test_mistakes(one_list, three_lists, tmp_path):
    with pytest.raises(UserError, match="penalized_logp only"):
        load(one_list, tmp_path, targets=["logp"])
    with pytest.raises(UserError, match="does not exist"):
        load(tmp_path / "none.smi", tmp_path)
    with pytest.raises(UserError, match=r"0 .smi files"):
        load(tmp_path, tmp_path)
    with pytest.raises(UserError, match="12,000 molecules"):
        load(one_list, tmp_path, split="random", subset="12k")
    with pytest.raises(UserError, match=r"split_file=.* does not exist"):
        load(one_list, tmp_path, split_file="none.index")
    (one_list / "zinc12k_val.index").write_text("1,x")
    with pytest.raises(UserError, match="not an index file"):
        load(one_list, tmp_path)
    (one_list / "zinc12k_val.index").write_text("1,30")
    with pytest.raises(UserError, match="do not belong together"):
        load(one_list, tmp_path)
    (one_list / "zinc12k_val.index").unlink()
    with pytest.raises(UserError, match=r"needs the benchmark's val.index"):
        load(one_list, tmp_path)
    (three_lists / "val.index").unlink()
    with pytest.raises(UserError, match=r"needs the benchmark's val.index"):
        load(three_lists, tmp_path, subset="12k")
    (one_list / "zinc_30.smi").write_bytes(b"C\n\xff\xfe\x00C")
    with pytest.raises(UserError, match=r"not UTF-8 text .*iconv"):
        load(one_list, tmp_path, split="random")


def test_a_bad_line_is_named(one_list, tmp_path):
    lines = (one_list / "zinc_30.smi").read_text().splitlines()
    lines[5] = "c1ccc"
    (one_list / "zinc_30.smi").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"Row 5 .*'c1ccc'"):
        load(one_list, tmp_path)
    loaded = load(one_list, tmp_path, on_error="skip")
    assert len(loaded.molecules) == 29
    assert [row.row for row in loaded.molecules.skipped] == [5]


def test_the_whole_download_from_a_local_mirror(three_lists, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(three_lists))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"

    def remote(name):
        content = (three_lists / name).read_bytes()
        return zinc.RemoteFile(
            name, (base + "none", base + name), len(content), hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        )

    monkeypatch.setattr(zinc, "LISTS", {part: remote(file.name) for part, file in zinc.LISTS.items()})
    monkeypatch.setattr(zinc, "INDICES", {part: remote(file.name) for part, file in zinc.INDICES.items()})
    try:
        loaded = load(None, tmp_path, subset="12k")
    finally:
        server.shutdown()
        server.server_close()
    assert rows_of(loaded) == {"train": [3, 7, 11], "val": [20, 24], "test": [26]}
    assert loaded.molecules.num_rows == 30
    assert load(None, tmp_path, subset="12k").data_hash == loaded.data_hash


def test_published_checksum_is_that_of_the_real_list(real_data):
    content = (real_data / "zinc" / "zinc_24445.smi").read_bytes()
    assert hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == zinc.LISTS["val"].git_blob
    assert len(content) == zinc.LISTS["val"].size
    index = (real_data / "zinc" / "zinc12k_val.index").read_bytes()
    assert hashlib.sha1(b"blob %d\0" % len(index) + index).hexdigest() == zinc.INDICES["val"].git_blob


def test_the_benchmarks_molecules_have_the_21_types(real_data):
    lines = (real_data / "zinc" / "zinc_24445.smi").read_text().splitlines()
    numbers = (real_data / "zinc" / "zinc12k_val.index").read_text().split(",")
    molecules = PackedMolecules.from_smiles([lines[int(number)].split()[0] for number in numbers], features="zinc12k")
    assert (len(molecules), molecules.num_features) == (1000, 21)
    assert molecules.edge_table.tolist() == np.eye(4)[1:].tolist()


@pytest.mark.slow
def test_the_experiments_12000_molecules(real_data, tmp_path):
    loaded = load(real_data / "zinc", tmp_path, subset="12k")
    assert {part: len(indices) for part, indices in loaded.splits.items()} == {"train": 10_000, "val": 1_000, "test": 1_000}
    published = np.sort(np.fromstring((real_data / "zinc" / "zinc12k_val.index").read_text(), sep=",", dtype=int))
    np.testing.assert_array_equal(loaded.molecules.rows[loaded.splits["test"]], published)
