"""Molecules that a set holds more than once stay together in splits, are reported and can be merged."""

import logging

import numpy as np
import pytest

from molgcn.data import PackedMolecules
from molgcn.data.config import DatasetConfig
from molgcn.data.duplicates import merge_repeats
from molgcn.data.identity import with_hashes
from molgcn.data.load import load_dataset
from molgcn.errors import UserError

SMILES = ["CCO", "CCN", "OCC", "C(O)C", "NCC", "CCC"]
LABELS = [[1, 4], [2, np.nan], [np.nan, 5], [4, 9], [2, np.nan], [7, 7]]


def written(tmp_path, rows, name="x.csv"):
    path = tmp_path / name
    path.write_text("smiles,y,part\n" + "".join(f"{row}\n" for row in rows))
    return path


def config(path, tmp_path, **options):
    return DatasetConfig(**{"name": "csv", "path": str(path), "targets": ["y"], "cache_dir": str(tmp_path / "cache"), **options})


@pytest.fixture
def alkanes(tmp_path):
    """Return a file of thirty alkanes with two copies each, written with hydrogens or backwards, whose labels disagree."""
    rows = []
    for n in range(2, 32):
        rows += [f"{'C' * n}F,0,train", f"F{'C' * n},{n},{'test' if n % 2 else 'train'}", f"[H]{'C' * n}F,1,{'val' if n % 3 else 'train'}"]
    return written(tmp_path, rows)


@pytest.mark.parametrize("split", ["random", "scaffold"])
@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (30, 15, 9)])
def test_copies_stay_in_one_part(alkanes, tmp_path, caplog, fractions, split):
    if split == "scaffold":  # which all alkanes share: one ring each
        alkanes.write_text(
            "smiles,y,part\n" + "".join(f"{'F' * flip}C1{'C' * n}C1{'F' * (1 - flip)},{n},\n" for n in range(1, 31) for flip in (0, 1))
        )
    caplog.set_level(logging.INFO)
    loaded = load_dataset(config(alkanes, tmp_path, split=split, split_fractions=fractions))
    hashes = {part: set(loaded.molecules.hashes[indices].tolist()) for part, indices in loaded.splits.items()}
    assert not hashes["train"] & (hashes["val"] | hashes["test"]) and not hashes["val"] & hashes["test"]
    wanted = [size if size > 1 else size * len(loaded.molecules) for size in fractions]
    sizes = [len(loaded.splits[part]) for part in ("train", "val", "test")]
    assert np.abs(np.subtract(sizes, wanted)).max() < 3 * (1 + (split == "scaffold"))
    unused = len(loaded.molecules) - sum(sizes)
    assert "training {}, validation {}, test {}, unused {}".format(*sizes, unused) in caplog.text
    assert "have a copy in the training part" not in caplog.text


@pytest.mark.parametrize("options", [{"split": "random", "group_duplicates": False}, {"split": "column", "split_column": "part"}])
def test_copies_that_cross_are_counted(alkanes, tmp_path, caplog, options):
    loaded = load_dataset(config(alkanes, tmp_path, **options))
    known = set(loaded.molecules.hashes[loaded.splits["train"]].tolist())
    crossing = [sum(one in known for one in loaded.molecules.hashes[loaded.splits[part]].tolist()) for part in ("val", "test")]
    assert min(crossing) > 0
    parts = [f"{count} of {len(loaded.splits[part])}" for count, part in zip(crossing, ("val", "test"), strict=True)]
    said = f"{parts[0]} validation and {parts[1]} test molecules have a copy in the training part"
    assert said in caplog.text
    assert "dataset.duplicates=first, mean or median" in caplog.text


def test_how_labels_disagree_is_said_at_every_load(alkanes, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(2):
        caplog.clear()
        load_dataset(config(alkanes, tmp_path))
        assert "60 molecules repeat another one as features=general sees them (30 groups)" in caplog.text
        example = f"row 87 ('{'C' * 31}F') and row 88 ('F{'C' * 31}')"
        assert f"in 30 groups labels disagree: y by up to 31 (median 16.5), as in {example}" in caplog.text


@pytest.mark.parametrize("how", ["keep", "mean", "error"])
def test_e_and_z_stay_in_one_part_and_are_not_merged(tmp_path, caplog, how):
    """Features see the geometry of a double bond at the bond alone, so that atoms and their neighbours agree."""
    rows = [f"F/C=C{mark}C{'C' * n},{label},{part}" for n in range(40) for mark, label, part in (("/", 0, "train"), ("\\", 10, "test"))]
    path = written(tmp_path, rows)
    caplog.set_level(logging.INFO)
    drawn = load_dataset(config(path, tmp_path, duplicates=how))
    assert sorted(drawn.molecules.targets[:, 0].tolist()) == [0] * 40 + [10] * 40
    pair = drawn.molecules.rows // 2
    assert sum(len(np.unique(pair[indices])) for indices in drawn.splits.values()) == 40
    assert "repeat" not in caplog.text and "copy" not in caplog.text
    load_dataset(config(path, tmp_path, duplicates=how, split="column", split_column="part"))
    assert "40 of 40 test molecules have a copy in the training part (40 of them differ from it in what splits leave out" in caplog.text
    assert "makes one molecule" not in caplog.text


def test_what_a_standard_form_made_one_is_said(tmp_path, caplog):
    """The canonical tautomer of R- and S-acetoin is the same, an enediol having no stereocentre."""
    path = written(tmp_path, ["C[C@H](O)C(C)=O,0,", "C[C@@H](O)C(C)=O,10,", *(f"{'C' * n}O,{n}," for n in range(1, 30))])
    caplog.set_level(logging.INFO)
    assert len(load_dataset(config(path, tmp_path, duplicates="mean")).molecules) == 31
    assert "repeat" not in caplog.text
    merged = load_dataset(config(path, tmp_path, duplicates="mean", standardize="tautomer")).molecules
    assert len(merged) == 30 and merged.targets[0, 0] == 5
    assert (
        "1 molecule repeats another one as features=general sees them after standardize=tautomer (1 group); in 1 group labels disagree: "
        "y by up to 10 (median 10), as in row 0 ('C[C@H](O)C(C)=O') and row 1 ('C[C@@H](O)C(C)=O')" in caplog.text
    )


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("first", [[1, 4], [2, np.nan], [7, 7]]),
        ("mean", [[2.5, 6], [2, np.nan], [7, 7]]),
        ("median", [[2.5, 5], [2, np.nan], [7, 7]]),
    ],
)
def test_one_molecule_a_group(how, expected):
    molecules = with_hashes(PackedMolecules.from_smiles(SMILES, np.array(LABELS)))
    merged = merge_repeats(molecules, how)
    np.testing.assert_array_equal(merged.targets, np.array(expected, np.float32))
    assert merged.rows.tolist() == [0, 1, 5]
    assert list(merged.smiles) == ["CCO", "CCN", "CCC"]
    assert np.array_equal(merged.hashes, molecules.hashes[[0, 1, 5]])
    assert merge_repeats(merged, how) is merged


def test_merged_sets_are_sets_of_their_own(alkanes, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    kept = load_dataset(config(alkanes, tmp_path))
    hashes = {kept.data_hash}
    for how in ("first", "mean", "median"):
        merged = load_dataset(config(alkanes, tmp_path, duplicates=how))
        assert len(merged.molecules) == 30
        assert f"dataset.duplicates={how} leaves 30 molecules" in caplog.text
        hashes.add(merged.data_hash)
    assert len(hashes) == 4
    assert len({len(one) for one in hashes}) == 1


def test_repeats_are_refused_by_row(alkanes, tmp_path):
    with pytest.raises(
        UserError, match=r"60 molecules repeat another one .*row 1 \('FCC'\) repeats row 0 \('CCF'\); row 2 .*, and so on\. "
    ) as error:
        load_dataset(config(alkanes, tmp_path, duplicates="error"))
    assert "\n" not in str(error.value)
    distinct = written(tmp_path, [f"{'C' * n},{n}," for n in range(1, 20)], "distinct.csv")
    same = [load_dataset(config(distinct, tmp_path, duplicates=how)) for how in ("error", "keep")]
    assert same[0].data_hash == same[1].data_hash


def test_an_unknown_choice_is_named():
    with pytest.raises(UserError, match=r"dataset.duplicates=avg is not an option"):
        DatasetConfig(duplicates="avg")


def test_one_molecule_written_often_cannot_be_split(tmp_path):
    path = written(tmp_path, [f"{text},{n}," for n, text in enumerate(["CCO", "OCC"] * 10)])
    with pytest.raises(UserError, match=r"val and test empty: 20 molecules are only 1 groups of copies"):
        load_dataset(config(path, tmp_path))
