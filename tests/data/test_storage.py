import json
import os
from dataclasses import replace

import numpy as np
import pytest
from graphs import molecule_lists, random_data
from hypothesis import given, settings

from molgcn.data import PackedMolecules
from molgcn.data.packed import SkippedRow
from molgcn.errors import UserError


@pytest.fixture
def molecules():
    rng = np.random.default_rng(1)
    data = [random_data(rng, int(n)) for n in rng.integers(1, 9, 12)]
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
    """A set from before there were versions has the first one, which a plain name no longer means where there is a newer one."""
    for features, written in (("qm9", "qm9:1"), ("general", "general:2"), ("general:1", "general:1"), ("mine", "mine"), (None, None)):
        replace(molecules, features=features).save(tmp_path / "set")
        meta = json.loads((tmp_path / "set" / "meta.json").read_text())
        assert meta["features"] == written
        assert PackedMolecules.load(tmp_path / "set").features == features
    for features, meant in (("qm9", "qm9"), ("general", "general:1")):
        (tmp_path / "set" / "meta.json").write_text(json.dumps({**meta, "features": features}))
        assert PackedMolecules.load(tmp_path / "set").features == meant


def test_round_trip(molecules, tmp_path):
    molecules.save(tmp_path / "set")
    loaded = PackedMolecules.load(tmp_path / "set")
    assert_same(loaded, molecules)
    assert isinstance(loaded.neighbors, np.memmap)
    assert_same(loaded[2:5], molecules[2:5])


@settings(deadline=None, max_examples=25)
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


def damage(name, change):
    def apply(folder):
        array = np.load(folder / f"{name}.npy")
        np.save(folder / f"{name}.npy", change(array))

    return apply


def first(array, value):
    array.flat[0] = value
    return array


DAMAGES = {
    "meta.json is missing": lambda folder: (folder / "meta.json").unlink(),
    "meta.json is no JSON": lambda folder: (folder / "meta.json").write_text("{"),
    "another format": lambda folder: (folder / "meta.json").write_text(json.dumps({"format": "molgcn-packed-0"})),
    "x.npy is missing": lambda folder: (folder / "x.npy").unlink(),
    "x.npy is cut": lambda folder: (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-3]),
    "x.npy is empty": lambda folder: (folder / "x.npy").write_bytes(b""),
    "a code beyond the table": damage("x", lambda x: first(x, 200)),
    "codes of another type": damage("x", lambda x: x.astype(np.int64)),
    "too few targets": damage("targets", lambda t: t[:-1]),
    "targets of another type": damage("targets", lambda t: t.astype(np.float64)),
    "degrees that do not add up": damage("degree", lambda d: first(d, 99)),
    "a neighbour out of range": damage("neighbors", lambda n: first(n, 99)),
    "too few neighbours": damage("neighbors", lambda n: n[:-1]),
    "offsets that do not start with 0": damage("node_ptr", lambda p: first(p, 1)),
    "offsets that decrease": damage("edge_ptr", lambda p: p[::-1].copy()),
    "offsets of another type": damage("node_ptr", lambda p: p.astype(np.int32)),
    "SMILES of fewer molecules": damage("smiles_ptr", lambda p: p[:-1]),
    "pickled objects": lambda folder: np.save(folder / "x.npy", np.array([{}], object), allow_pickle=True),
}


@pytest.mark.parametrize("kind", DAMAGES, ids=str)
def test_a_damaged_set_is_named(molecules, tmp_path, kind):
    molecules.save(tmp_path / "set")
    DAMAGES[kind](tmp_path / "set")
    with pytest.raises(UserError, match="is not a readable packed set"):
        PackedMolecules.load(tmp_path / "set")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="nowhere is not a readable packed set"):
        PackedMolecules.load(tmp_path / "nowhere")
