import json
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from graphs import molecule_lists, random_data
from hypothesis import given, settings

from molgcn.data import PackedMolecules
from molgcn.data.rows import SkippedRow
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError


@pytest.fixture
def molecules():
    rng = np.random.default_rng(1)
    data = [random_data(rng, int(n), num_edge_features=2) for n in rng.integers(1, 9, 12)]
    return PackedMolecules.from_pyg(
        data,
        smiles=[f"C{i}" for i in range(12)],
        target_names=["a", "b"],
        target_units=["eV", ""],
        features="qm9",
        skipped=[SkippedRow(3, "X", "no such element")],
    )


def assert_same(one, other):
    assert one.content_hash() == other.content_hash()
    for name in ("target_names", "target_units", "features", "skipped"):
        assert getattr(one, name) == getattr(other, name)
    assert np.array_equal(one.rows, other.rows)
    assert (one.smiles is None) == (other.smiles is None) and (one.smiles is None or list(one.smiles) == list(other.smiles))


def test_the_version_of_the_features_is_kept(molecules, tmp_path):
    kept = {"qm9": "qm9:1", "general": "general:3", "general:1": "general:1", "general:no_stereo": "general:3:no_stereo", "mine": "mine"}
    for features, written in (*kept.items(), (None, None)):
        replace(molecules, features=features).save(tmp_path / "set")
        meta = json.loads((tmp_path / "set" / "meta.json").read_text())
        assert meta["features"] == written
        assert PackedMolecules.load(tmp_path / "set").features == features


def test_round_trip(molecules, tmp_path):
    molecules.save(tmp_path / "set")
    loaded = PackedMolecules.load(tmp_path / "set")
    assert_same(loaded, molecules)
    assert isinstance(loaded.neighbors, np.memmap)
    assert_same(loaded[2:5], molecules[2:5])


@settings(max_examples=25)
@given(molecule_lists(max_size=8))
def test_round_trip_of_any_set(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("sets") / "set"
    packed = PackedMolecules.from_pyg(data)
    packed.save(folder)
    assert_same(PackedMolecules.load(folder), packed)


def test_saving_replaces_an_older_set_and_leaves_nothing_behind(molecules, tmp_path):
    molecules.save(tmp_path / "set")
    molecules[:3].save(str(tmp_path / "set"))
    assert len(PackedMolecules.load(str(tmp_path / "set"))) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_others_may_read_what_the_umask_lets_them(molecules, tmp_path):
    before = os.umask(0o027)
    try:
        molecules.save(tmp_path / "set")
    finally:
        os.umask(before)
    assert (tmp_path / "set").stat().st_mode & 0o777 == 0o750


def test_a_failed_save_leaves_the_older_set(molecules, tmp_path, monkeypatch):
    molecules.save(tmp_path / "set")

    def full(*args, **options):
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="disk full"):
        molecules[:3].save(tmp_path / "set")
    assert len(PackedMolecules.load(tmp_path / "set")) == 12
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def resave(folder, **arrays):
    """Save the set in `folder` with other content and matching checksums."""
    saved = PackedMolecules.load(folder)
    replace(saved, **{name: change(np.array(getattr(saved, name))) for name, change in arrays.items()}).save(folder)


def first(array, value):
    array.flat[0] = value
    return array


def write_meta(**values):
    return lambda folder: (folder / "meta.json").write_text(json.dumps(json.loads((folder / "meta.json").read_text()) | values))


def cut_strings(folder):
    saved = PackedMolecules.load(folder)
    replace(saved, smiles=PackedStrings(saved.smiles.data, saved.smiles.ptr[:-1])).save(folder)


def strings_by_int32(folder):
    saved = PackedMolecules.load(folder)
    replace(saved, smiles=PackedStrings(saved.smiles.data, saved.smiles.ptr.astype(np.int32))).save(folder)


DAMAGES = {
    "meta.json is missing": (lambda folder: (folder / "meta.json").unlink(), "No such file"),
    "meta.json is no JSON": (lambda folder: (folder / "meta.json").write_text("{"), "Expecting property name"),
    "meta.json is not text": (lambda folder: (folder / "meta.json").write_bytes(b"\xff{}"), "can't decode"),
    "meta.json is a list": (lambda folder: (folder / "meta.json").write_text("[]"), "meta.json names no format"),
    "another layout": (write_meta(format="molgcn-packed-2"), "its format is 'molgcn-packed-2', this version reads"),
    "another target's name": (write_meta(target_names=["a", "c"]), "meta.json is damaged"),
    "another unit": (write_meta(target_units=["meV", ""]), "meta.json is damaged"),
    "x.npy is missing": (lambda folder: (folder / "x.npy").unlink(), "No such file"),
    "x.npy is cut": (lambda folder: (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-3]), "x.npy is damaged"),
    "x.npy is empty": (lambda folder: (folder / "x.npy").write_bytes(b""), "x.npy is damaged"),
    "pickled objects": (lambda folder: np.save(folder / "x.npy", np.array([{}], object), allow_pickle=True), "x.npy is damaged"),
    "a matrix by columns": (
        lambda folder: np.save(folder / "table.npy", np.asfortranarray(np.load(folder / "table.npy"))),
        "table.npy is damaged",
    ),
    "a code beyond the table": (partial(resave, x=lambda x: first(x, 200)), "code beyond the table"),
    "a bond's code beyond the table": (
        partial(resave, edge_attr=lambda codes: first(codes, 200)),
        "edge_attr holds a code beyond the table",
    ),
    "edge_attr without a table": (partial(resave, edge_table=lambda _: None), "edge_attr is of type uint8, which needs a table"),
    "codes of another type": (partial(resave, x=lambda x: x.astype(np.int64)), "x is of type int64, not uint8 or uint16 or float32"),
    "features that are codes": (partial(resave, x=lambda x: np.ones((len(x), 1), np.float32)), "x is of type float32, which has no table"),
    "too few targets": (partial(resave, targets=lambda t: t[:-1]), "targets has 11 entries where 12 belong"),
    "targets of another type": (partial(resave, targets=lambda t: t.astype(np.float16)), "targets is of type float16"),
    "targets by columns": (partial(resave, targets=np.asfortranarray), "targets has shape"),
    "rows of another type": (partial(resave, rows=lambda r: r.astype(np.int32)), "rows is of type int32"),
    "degrees that do not add up": (partial(resave, degree=lambda d: first(d, 99)), "degree does not add up"),
    "a neighbour out of range": (partial(resave, neighbors=lambda n: first(n, 99)), "neighbors holds an atom"),
    "too few neighbours": (partial(resave, neighbors=lambda n: n[:-1]), "neighbors has"),
    "offsets that do not start with 0": (partial(resave, node_ptr=lambda p: first(p, 1)), "node_ptr is not a list of int64 offsets"),
    "offsets that decrease": (partial(resave, edge_ptr=lambda p: p[::-1].copy()), "edge_ptr is not a list of int64 offsets"),
    "offsets of another type": (partial(resave, node_ptr=lambda p: p.astype(np.int32)), "node_ptr is of type int32, not int64"),
    "SMILES of fewer molecules": (cut_strings, "smiles is not text"),
    "SMILES by short offsets": (strings_by_int32, "smiles_ptr is not a list of int64 offsets"),
}


@pytest.mark.parametrize("kind", DAMAGES, ids=str)
def test_a_damaged_set_is_named(molecules, tmp_path, kind):
    molecules.save(tmp_path / "set")
    damage, reason = DAMAGES[kind]
    damage(tmp_path / "set")
    with pytest.raises(UserError, match=f"set is not a readable packed set: .*{reason}.*delete it and pack again"):
        PackedMolecules.load(tmp_path / "set")


def test_no_byte_of_a_set_changes_in_silence(molecules, tmp_path):
    """Flipped bits and ends that are cut off or added are found, at 400 places drawn equally from all files."""
    molecules.save(tmp_path / "set")
    files = sorted((tmp_path / "set").iterdir())
    rng = np.random.default_rng(5)
    refused = 0
    for number in range(400):
        path = files[number % len(files)]
        content = bytearray(whole := path.read_bytes())
        place = int(rng.integers(len(whole)))
        kind = rng.choice(["flip", "cut", "add"], p=[0.8, 0.1, 0.1])
        if kind == "flip":
            content[place] ^= 1 << rng.integers(8)
        path.write_bytes(content if kind == "flip" else whole[:place] if kind == "cut" else whole + rng.bytes(1 + place))
        try:
            assert_same(PackedMolecules.load(tmp_path / "set"), molecules)
        except UserError:
            refused += 1
        path.write_bytes(whole)
    assert refused > 380  # what JSON reads alike, such as another blank, is no damage
    assert_same(PackedMolecules.load(tmp_path / "set"), molecules)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="nowhere is not a readable packed set"):
        PackedMolecules.load(tmp_path / "nowhere")
