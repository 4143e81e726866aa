"""Features of atoms and bonds of .npz files stand behind the computed ones, at the right atoms and bonds."""

from dataclasses import replace

import numpy as np
import pytest
from rdkit import Chem

from molgcn.data.applicability import contents_of
from molgcn.data.config import DatasetConfig
from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.load import load_dataset, load_molecules
from molgcn.data.own_features import with_own_features
from molgcn.data.packed import PackedMolecules
from molgcn.data.row_matrices import RowMatrices
from molgcn.domain.index import DomainIndex
from molgcn.errors import UserError

SMILES = ["CC(=O)OC1=CC=CC=C1C(=O)O", "C", "OCC1CCC=CC1", "N#CC1CC1", "CNF", "C[C@H](O)F", "OO", "CCCC", "FC(F)F", "CCOCC"]


def graphs(smiles, features):
    mols = map(Chem.MolFromSmiles, smiles)
    return [Chem.AddHs(mol) if get_featurizer(features).hydrogens == "explicit" else mol for mol in mols]


def own(mols):
    """Features that name the atoms and bonds: their number and atomic number, or their number and ends."""
    atoms = [np.array([[atom.GetIdx() + 0.5, atom.GetAtomicNum()] for atom in mol.GetAtoms()]) for mol in mols]
    ends = [[(bond.GetIdx(), *sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in mol.GetBonds()] for mol in mols]
    return atoms, [np.array(one, float).reshape(-1, 3) for one in ends]


def config(folder, smiles=SMILES, features="general", **options):
    (folder / "a.csv").write_text("smiles,y\n" + "".join(f"{text},{number}\n" for number, text in enumerate(smiles)))
    atoms, bonds = own(graphs(SMILES, features))
    np.savez(folder / "atoms.npz", *atoms)
    np.savez(folder / "bonds.npz", *bonds)
    files = {"atom_features_path": str(folder / "atoms.npz"), "bond_features_path": str(folder / "bonds.npz")}
    fixed = {"name": "csv", "path": str(folder / "a.csv"), "targets": ["y"], "cache_dir": str(folder / "cache"), "features": features}
    return DatasetConfig(**{**fixed, **files, **options})


def check(molecules, features):
    """Compare every atom and directed bond of a set with RDKit, by the rows of its molecules."""
    mols = graphs(SMILES, features)
    atoms, _ = own(mols)
    for row, graph in zip(molecules.rows.tolist(), molecules.to_pyg(), strict=True):
        assert np.array_equal(graph.x[:, -2:].numpy(), atoms[row].astype(np.float32))
        for source, target, numbers in zip(*graph.edge_index.tolist(), graph.edge_attr[:, -3:].tolist(), strict=True):
            bond = mols[row].GetBondBetweenAtoms(source, target)
            assert numbers == [bond.GetIdx(), *sorted((source, target))]


@pytest.mark.parametrize("features", [*FEATURIZERS, "general:1", "general:explicit_hydrogens"])
def test_every_featuriser_has_them_at_their_atoms_and_bonds(tmp_path, features):
    molecules, *_ = load_molecules(config(tmp_path, features=features))
    plain, *_ = load_molecules(config(tmp_path, features=features, atom_features_path=None, bond_features_path=None))
    check(molecules, features)
    assert molecules.num_features == plain.num_features + 2 and molecules.num_edge_features == plain.num_edge_features + 3
    assert np.array_equal(molecules.node_features()[:, :-2], plain.node_features())
    assert molecules.atom_feature_names == ("atom_feature_0", "atom_feature_1") and plain.atom_feature_names == ()
    assert contents_of(molecules) == contents_of(plain)  # elements are read from the computed features
    if plain.edge_attr is not None:
        ours, theirs = DomainIndex.of(molecules, num_workers=0), DomainIndex.of(plain, num_workers=0)
        assert all(np.array_equal(a, theirs.arrays()[name]) for name, a in ours.arrays().items())


def test_rows_that_are_left_out_and_chosen_keep_the_others_aligned(tmp_path):
    smiles = [SMILES[0], "not a molecule", *SMILES[2:7], SMILES[7], *SMILES[8:]]
    given = config(tmp_path, smiles, on_error="skip")
    loaded = load_dataset(replace(given, subset=8, split="scaffold", split_fractions=(0.6, 0.2, 0.2)))
    for part in loaded.parts:
        check(loaded.part(part), "general")
    atoms, _ = own(graphs(SMILES, "general"))
    atoms[4], atoms[6] = atoms[4][:-1], atoms[6] * np.inf
    np.savez(tmp_path / "atoms.npz", *atoms)
    molecules, *_ = load_molecules(given)
    assert molecules.rows.tolist() == [0, 2, 3, 5, 7, 8, 9]
    check(molecules, "general")
    reasons = {row.row: row.reason for row in molecules.skipped}
    assert [*reasons] == [1, 4, 6] and "have 2 rows, and it has 3 atoms with features=general" in reasons[4]
    assert "'atom_feature_0' of atom 0 is not a finite number" in reasons[6]
    (tmp_path / "valid.csv").write_text((tmp_path / "a.csv").read_text().replace("not a molecule", SMILES[1]))
    with pytest.raises(UserError, match=r"Row 4 of .*valid\.csv.*have 2 rows.*dataset\.atom_features_path=.*atoms\.npz.*on_error=skip"):
        load_molecules(replace(given, path=str(tmp_path / "valid.csv"), on_error="raise"))


def test_the_cache_follows_the_files(tmp_path):
    given = config(tmp_path)
    molecules, _, data_hash = load_molecules(given)
    cached, _, same = load_molecules(given)
    assert same == data_hash and np.array_equal(cached.node_features(), molecules.node_features())
    assert cached.atom_feature_names == molecules.atom_feature_names and cached.bond_feature_names == molecules.bond_feature_names
    atoms, _ = own(graphs(SMILES, "general"))
    np.savez(tmp_path / "atoms.npz", *(2 * one for one in atoms))
    changed, _, other = load_molecules(given)
    assert other != data_hash and np.array_equal(changed.node_features()[:, -2:], 2 * molecules.node_features()[:, -2:])


def test_molecules_with_other_features_are_copies_and_no_repeats(tmp_path):
    smiles = ["CCO", "OCC", "CCO", "CC"]
    (tmp_path / "a.csv").write_text("smiles,y\n" + "".join(f"{text},{number}\n" for number, text in enumerate(smiles)))
    np.savez(tmp_path / "x.npz", *(np.array(one)[:, None] for one in ([1, 2, 3], [3, 2, 1], [1, 2, 4], [0, 0])))
    options = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "cache_dir": str(tmp_path), "duplicates": "mean"}
    molecules, *_ = load_molecules(DatasetConfig(**options, atom_features_path=str(tmp_path / "x.npz")))
    assert molecules.rows.tolist() == [0, 2, 3] and molecules.targets[:, 0].tolist() == [0.5, 2, 3]
    assert molecules.hashes[0] == molecules.hashes[1]  # so that a split keeps them together


def test_several_molecules_in_a_row_have_theirs_one_after_another(tmp_path):
    pairs = [("CCO", "O"), ("C", "CC(C)O"), ("OC=O", "CN")]
    (tmp_path / "a.csv").write_text("a,b,y\n" + "".join(f"{a},{b},1.5\n" for a, b in pairs))
    joined = [Chem.MolFromSmiles(".".join(pair)) for pair in pairs]
    atoms, bonds = own(joined)
    np.savez(tmp_path / "atoms.npz", *atoms)
    np.savez(tmp_path / "bonds.npz", *bonds)
    files = {f"{of}_features_path": str(tmp_path / f"{of}s.npz") for of in ("atom", "bond")}
    options = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["y"], "smiles": ["a", "b"], "cache_dir": str(tmp_path)}
    molecules, *_ = load_molecules(DatasetConfig(**options, **files))
    for row, graph in enumerate(molecules.to_pyg()):
        assert np.array_equal(graph.x[:, -2:].numpy(), atoms[row].astype(np.float32))
        for source, target, numbers in zip(*graph.edge_index.tolist(), graph.edge_attr[:, -3:].tolist(), strict=True):
            assert numbers == [joined[row].GetBondBetweenAtoms(source, target).GetIdx(), *sorted((source, target))]


def test_rows_of_several_files_are_counted_through_all_and_named_in_theirs(tmp_path):
    given = config(tmp_path, SMILES[:6], val_path=str(tmp_path / "v.csv"))
    (tmp_path / "v.csv").write_text("smiles,y\n" + "".join(f"{text},1.5\n" for text in SMILES[6:]))
    check(load_molecules(given)[0], "general")
    atoms, _ = own(graphs(SMILES, "general"))
    np.savez(tmp_path / "atoms.npz", *atoms[:7], atoms[7][:-1], atoms[8][:-1], atoms[9])
    with pytest.raises(UserError, match=r"^Row 1 of \S*v\.csv \(counted.*have 3 rows.*It is the first of 2 such rows of 10\."):
        load_molecules(given)
    given = replace(given, atom_features_path=None, bond_features_path=None, descriptors=["y2"])
    for name in ("a", "v"):
        rows = (tmp_path / f"{name}.csv").read_text().splitlines()
        (tmp_path / f"{name}.csv").write_text(
            "\n".join([f"{rows[0]},y2", *(f"{row},{'' if name == 'v' and place else 1}" for place, row in enumerate(rows[1:]))])
        )
    with pytest.raises(UserError, match=r"^Row 1 of \S*v\.csv \(counted.*'y2' is missing\. It is the first of 3 such rows of 10\."):
        load_molecules(given)


def test_files_and_keys_that_do_not_fit(tmp_path):
    with pytest.raises(UserError, match=r"matrices of 10 molecules, but .*a\.csv has 9 rows"):
        load_molecules(config(tmp_path, SMILES[:-1]))
    with pytest.raises(UserError, match=r"atom_features_path does not go with dataset\.standardize=neutral"):
        config(tmp_path, standardize="neutral")
    with pytest.raises(UserError, match=r"Give a readable file as dataset\.bond_features_path"):
        load_molecules(config(tmp_path, bond_features_path=str(tmp_path / "none.npz")))


def test_hydrogens_are_named_by_the_keys_of_a_run():
    molecules = PackedMolecules.from_smiles(["CO"], features="general:explicit_hydrogens", num_workers=0)
    _, reasons = with_own_features(molecules, RowMatrices.of([np.zeros((2, 1))], ["a"]), None)
    assert "2 rows, and it has 6 atoms with features=general explicit_hydrogens=true, where hydrogens are atoms" in reasons[0]


def test_sets_in_memory():
    molecules = PackedMolecules.from_smiles(["CO", "C"], features="general", num_workers=0)
    found, reasons = with_own_features(molecules, RowMatrices.of([np.ones((2, 1)), np.ones((2, 1))], ["q"]), None)
    assert found is not None and len(found) == 1 and [*reasons] == [1] and found.node_features()[:, -1].tolist() == [1, 1]
    assert with_own_features(molecules, RowMatrices.of([np.ones((3, 1))] * 2, ["q"]), None)[0] is None
    other, _ = with_own_features(molecules[[0]], RowMatrices.of([np.ones((2, 1))], ["z"]), None)
    with pytest.raises(UserError, match="atom_feature_names"):
        PackedMolecules.concat([found, other])
