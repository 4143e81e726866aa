"""Targets of atoms and bonds, in columns of lists or .npz files, stand at the right atoms and bonds of every set and batch."""

import json

import numpy as np
import pytest
from rdkit import Chem

from molgcn.data.config import DatasetConfig
from molgcn.data.levels import Rows
from molgcn.data.load import load_dataset, load_molecules
from molgcn.errors import UserError
from molgcn.files.column import Column

SMILES = ["CC(=O)OC1=CC=CC=C1C(=O)O", "C", "OCC1CCC=CC1", "N#CC1CC1", "CNF", "FC(F)F"]


def graphs(smiles=SMILES, explicit=False):
    mols = map(Chem.MolFromSmiles, smiles)
    return [Chem.AddHs(mol) if explicit else mol for mol in mols]


def lists(mols):
    """Numbers that name atoms and bonds, of which the first one of every second molecule is missing."""
    atoms = [[atom.GetIdx() + 0.5 for atom in mol.GetAtoms()] for mol in mols]
    ends = [[(bond.GetIdx(), *sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in mol.GetBonds()] for mol in mols]
    bonds = [[10_000 * number + 100 * low + high for number, low, high in one] for one in ends]
    return [[None, *one[1:]] if place % 2 else one for place, one in enumerate(atoms)], bonds


def write(path, smiles, atoms, bonds):
    rows = [f'{text},{number},"{one}","{other}"' for number, (text, one, other) in enumerate(zip(smiles, atoms, bonds, strict=True))]
    path.write_text("\n".join(["smiles,y,q,b", *rows]) + "\n")


def config(folder, explicit=False, files=False, **options):
    atoms, bonds = lists(graphs(explicit=explicit))
    write(folder / "a.csv", SMILES, map(json.dumps, atoms), map(json.dumps, bonds))
    keys = {"atom_targets": ["q"], "bond_targets": ["b"]}
    if files:
        as_rows = [[np.array(one, float).reshape(-1, 1) for one in values] for values in (atoms, bonds)]
        np.savez(folder / "atoms.npz", *as_rows[0], names=np.array(["q"]))
        np.savez(folder / "bonds.npz", x=np.concatenate(as_rows[1]), offsets=np.cumsum([0, *map(len, bonds)]), names=np.array(["b"]))
        keys = {"atom_targets_path": str(folder / "atoms.npz"), "bond_targets_path": str(folder / "bonds.npz")}
    fixed = {
        "name": "csv",
        "path": str(folder / "a.csv"),
        "targets": ["y"],
        "cache_dir": str(folder / "cache"),
        "explicit_hydrogens": explicit,
    }
    return DatasetConfig(**{**fixed, **keys, **options})


def check(molecules, explicit=False):
    """Compare every value with RDKit's atoms and bonds, in the graphs, in batches, and in columns of lists."""
    mols = graphs(explicit=explicit)
    atoms, bonds = lists(mols)
    for row, graph in zip(molecules.rows.tolist(), molecules.to_pyg(), strict=True):
        np.testing.assert_array_equal(graph.atom_targets[:, 0], np.array(atoms[row], np.float32))
        for source, target, value in zip(*graph.edge_index.tolist(), graph.bond_targets[:, 0].tolist(), strict=True):
            number = mols[row].GetBondBetweenAtoms(source, target).GetIdx()
            assert np.isnan(value) if source > target else value == bonds[row][number]
    rows = Rows.of(molecules)
    _, of_atoms, of_bonds = (rows.column(target, Column("", rows.targets[:, target])) for target in range(3))
    assert [json.loads(cell) for cell in of_atoms.cells] == [atoms[row] for row in molecules.rows]
    assert [json.loads(cell) for cell in of_bonds.cells] == [bonds[row] for row in molecules.rows]
    order = np.arange(len(molecules))[::-2]
    batch = molecules.batch(order)
    stacked = np.concatenate([np.full_like(batch.targets[:, :1], np.nan), batch.atom_targets, np.full((batch.num_edges, 1), np.nan)])
    np.testing.assert_array_equal(rows.targets[rows.at(order)][:, 1:2], stacked)
    np.testing.assert_array_equal(Rows.of(molecules[order]).targets, rows.targets[rows.at(order)])


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
def test_values_are_at_their_atoms_and_bonds(tmp_path, explicit, files):
    for _ in range(2):  # packed, then from the cache
        molecules, *_ = load_molecules(config(tmp_path, explicit, files))
        assert molecules.target_names == ("y", "q", "b")
        check(molecules, explicit)
    check(molecules[[4, 1, 2]], explicit)


def test_joined_files_and_a_subset_keep_their_rows(tmp_path):
    atoms, bonds = lists(graphs())
    options = config(tmp_path, subset=3)
    molecules, *_ = load_molecules(options)
    assert len(molecules) == 3
    check(molecules)
    write(tmp_path / "first.csv", SMILES[:4], map(json.dumps, atoms[:4]), map(json.dumps, bonds[:4]))
    write(tmp_path / "second.csv", SMILES[4:], map(json.dumps, atoms[4:]), map(json.dumps, bonds[4:]))
    joined = config(tmp_path, path=str(tmp_path / "first.csv"), val_path=str(tmp_path / "second.csv"))
    check(load_molecules(joined)[0])


def test_only_targets_of_molecules_stratify_a_split(tmp_path):
    options = {"split": "stratified", "split_fractions": [4, 1, 1]}
    assert len(load_dataset(config(tmp_path, **options)).splits["train"]) == 4
    with pytest.raises(UserError, match=r"stratifies by a target of molecules.*Use dataset\.split=random"):
        load_dataset(config(tmp_path, targets=None, **options))


def test_without_targets_of_molecules_only_those_of_atoms_are_learned(tmp_path):
    molecules, *_ = load_molecules(config(tmp_path, targets=None, bond_targets=None))
    assert molecules.target_names == ("q",) and molecules.bond_targets is None


@pytest.mark.parametrize(
    ("cell", "match"),
    [
        ("[1, 2]", r"Row 3 of .*a\.csv.*'q' has 2 values, and it has 5 atoms with features=general.* only such row of 6.*on_error=skip"),
        ("0.5", r"'q' is '0\.5', not a JSON list with a number or null for each atom"),
        ('[1, 2, 3, 4, ""x""]', "not a JSON list"),
        ("[1, 2, 3, 4, 1e999]", "'q' of atom 4 is not a finite number"),
    ],
)
def test_a_list_that_does_not_fit_is_named_or_left_out(tmp_path, cell, match):
    options = config(tmp_path)
    atoms, bonds = lists(graphs())
    cells = [*map(json.dumps, atoms)]
    cells[1], cells[3] = "", cell
    write(tmp_path / "a.csv", SMILES, cells, map(json.dumps, bonds))
    with pytest.raises(UserError, match=match):
        load_molecules(options)
    options = DatasetConfig(**{**vars(options), "on_error": "skip"})
    molecules, *_ = load_molecules(options)
    assert [row.row for row in molecules.skipped] == [3] and molecules.rows.tolist() == [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(molecules[1].atom_targets, [[np.nan]])  # of an empty cell


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": "builtin", "path": None, "targets": None}, r"names columns of dataset=csv\. Use dataset\.atom_targets_path"),
        ({"atom_targets_path": "a.npz"}, "both give targets of atoms"),
        ({"bond_targets": ["q"]}, "name .*q.* twice"),
        ({"standardize": "neutral"}, "dataset.standardize=neutral does not go with targets of atoms and bonds"),
        ({"weights": "y"}, "training.task_weights"),
        ({"bounded": True}, "without bounds"),
        ({"duplicates": "mean"}, "first, or keep"),
        ({"smiles": ["smiles", "solvent"]}, "one column of molecules"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, options, match):
    with pytest.raises(UserError, match=match):
        config(tmp_path, **options)


def test_files_of_another_length_and_unknown_columns_are_refused(tmp_path):
    given = config(tmp_path, files=True)
    np.savez(tmp_path / "atoms.npz", np.ones((2, 1)), names=np.array(["q"]))
    with pytest.raises(UserError, match=r"dataset\.atom_targets_path has the matrices of 1 molecule, but .* has 6 rows"):
        load_molecules(given)
    with pytest.raises(UserError, match=r"no column 'charge'.*dataset\.atom_targets"):
        load_molecules(config(tmp_path, atom_targets=["charge"]))
    reactions = [f"{text}>>{text}" for text in SMILES]
    options = config(tmp_path)
    write(tmp_path / "a.csv", reactions, *(map(json.dumps, one) for one in lists(graphs())))
    with pytest.raises(UserError, match=r"Targets of atoms are for molecules, and .* has reactions"):
        load_molecules(options)
