"""Rows of several molecules are joined to one graph, in which each atom has its component."""

import numpy as np
import pytest
import torch
from compiler import needs_extension
from graphs import random_data
from hypothesis import given, settings
from hypothesis import strategies as st

from molgcn.data import PackedMolecules
from molgcn.data.components import join_components, num_components
from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset, load_molecules
from molgcn.data.loader import PackedLoader, PyGLoader
from molgcn.data.set_checks import check_arrays
from molgcn.errors import UserError


def random_set(seed, sizes, levels):
    rng = np.random.default_rng(seed)
    return PackedMolecules.from_pyg([random_data(rng, n, levels=levels, num_edge_features=2, num_descriptors=1) for n in sizes])


@settings(max_examples=25)
@given(
    st.integers(1, 3).flatmap(
        lambda k: st.lists(st.lists(st.sampled_from([1, 2, 9, 63, 130]), min_size=k, max_size=k), min_size=1, max_size=6)
    ),
    st.sampled_from([0, 2]),
)
def test_every_component_of_a_row_is_its_molecule(rows, levels):
    """Atoms, bonds and features of a row are those of PyG's Data of its molecules in turn, and descriptors stand side by side."""
    sets = [random_set(number, sizes, levels) for number, sizes in enumerate(zip(*rows, strict=True))]
    joined = join_components(sets, "abc"[: len(sets)])
    check_arrays(joined)
    assert num_components(joined) == len(sets) and len(joined) == len(rows)
    parts = [one.to_pyg() for one in sets]
    for place, row in enumerate(joined.to_pyg()):
        start = 0
        for number, part in enumerate(parts):
            atoms = row.component == number
            bonds = atoms[row.edge_index[0]]
            assert torch.equal(row.x[atoms], part[place].x)
            assert torch.equal(row.edge_index[:, bonds] - start, part[place].edge_index)
            assert torch.equal(row.edge_attr[bonds], part[place].edge_attr)
            start += int(atoms.sum())
        assert torch.equal(row.descriptors, torch.cat([part[place].descriptors for part in parts], 1))
        assert start == row.num_nodes


@needs_extension
def test_loaders_and_files_keep_the_components(tmp_path):
    joined = join_components([random_set(seed, range(1, 30), 2) for seed in (0, 1)], "ab")
    joined.save(tmp_path / "set")
    loaded = PackedMolecules.load(tmp_path / "set")
    assert np.array_equal(loaded.component, joined.component) and loaded.content_hash() == joined.content_hash()
    chosen = np.array([7, 3, 20])
    assert torch.equal(joined[chosen].batch([0, 1, 2]).component, joined.batch(chosen).component)
    for one, other in zip(PackedLoader(joined, 8, seed=2), PyGLoader(joined, 8, seed=2), strict=True):
        assert torch.equal(one.component, other.component) and one.component.dtype == torch.int32
        assert torch.equal(one.padded.component[: one.num_nodes], one.component)
        assert torch.equal(one.clone().to_pyg().component, other.component)


ROWS = [("C" * (1 + n % 6) + "O", ["O", "CO", "CCO"][n % 3], n) for n in range(24)]


def config(tmp_path, rows=ROWS, **options):
    (tmp_path / "a.csv").write_text("solute,solvent,y\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    values = {"name": "csv", "path": str(tmp_path / "a.csv"), "smiles": ["solute", "solvent"], "targets": ["y"], "features": "general"}
    return DatasetConfig(**{**values, "cache_dir": str(tmp_path / "cache"), **options})


def test_columns_of_smiles_are_components(tmp_path):
    molecules, *_ = load_molecules(config(tmp_path, descriptor_generators=["maccs"], standardize="neutral"))
    assert [*molecules.smiles] == [f"{solute}.{solvent}" for solute, solvent, _ in ROWS]
    assert molecules.descriptor_names[0] == "solute.maccs_1" and molecules.descriptor_names[-1] == "solvent.maccs_166"
    alone = PackedMolecules.from_smiles([solvent for _, solvent, _ in ROWS], features="general")
    solvents = molecules.component == 1
    assert np.array_equal(molecules.node_features()[solvents], alone.node_features())


def test_swapped_components_are_another_row(tmp_path):
    rows = [("CCO", "O", 1), ("OCC", "O", 3), ("O", "CCO", 5), *ROWS[3:]]
    molecules, *_ = load_molecules(config(tmp_path, rows, duplicates="mean"))
    assert molecules.targets[:2, 0].tolist() == [2, 5]


def test_parts_are_drawn_and_nothing_is_said_of_mixtures(tmp_path, caplog):
    loaded = load_dataset(config(tmp_path))
    assert sum(map(len, loaded.splits.values())) == 24 and "fragments" not in caplog.text


@pytest.mark.parametrize(
    ("rows", "options", "match"),
    [
        ([("CCO", "XX", 1), *ROWS], {}, r"Row 0 of .*a\.csv, column 'solvent' .*'XX' cannot be used"),
        ([("", "O", 1), *ROWS], {}, r"column 'solute' .*the SMILES is empty"),
        (ROWS, {"smiles": ["solute", "solvant"]}, r"no column 'solvant' \(dataset.smiles\). Did you mean 'solvent'"),
        (ROWS, {"smiles": ["solute", "solute"]}, "several different ones"),
        ([("CO", "XX", 1), ("XX", "CO", 1)], {"on_error": "skip"}, "No row of .* has a molecule in each of solute, solvent"),
    ],
)
def test_mistakes_name_the_column(tmp_path, rows, options, match):
    with pytest.raises(UserError, match=match):
        load_molecules(config(tmp_path, rows, **options))


def test_a_row_that_lacks_a_component_is_left_out(tmp_path):
    rows = [("CCO", "XX", 1), ("C1", "", 2), *ROWS]
    molecules, *_ = load_molecules(config(tmp_path, rows, on_error="skip"))
    assert molecules.rows.tolist() == [*range(2, 26)]
    assert [row.reason.split(":")[0] for row in molecules.skipped] == ["solvent", "solute"]


@pytest.mark.parametrize("name", ["qm9", "zinc", "builtin"])
def test_other_sets_have_one_molecule_a_row(name):
    with pytest.raises(UserError, match=r"several columns.*Use dataset=csv"):
        DatasetConfig(name=name, smiles=["a", "b"])


def test_a_record_is_one_molecule(tmp_path):
    (tmp_path / "a.sdf").write_text("")
    with pytest.raises(UserError, match=r"a record of .*a\.sdf is one molecule"):
        load_molecules(config(tmp_path, path=str(tmp_path / "a.sdf")))
