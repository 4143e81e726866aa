"""Molecules are equal if and only if the network gets the same input for them, and copies may differ in what splits leave out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem
from torch_geometric.data import Data

from molgcn.data import PackedMolecules
from molgcn.data.identity import first_copies, with_hashes
from molgcn.data.merge_leaves import merge_leaves
from molgcn.errors import UserError

from .graphs import molecule_lists

# Pairs of different molecules that colour refinement cannot tell apart: decalin and bicyclopentyl, and two pairs of QM9
ALIKE_TO_REFINEMENT = [("C1CCC2CCCCC2C1", "C1CCC(C1)C1CCCC1"), ("C1CC2CCC12", "C1CC1C1CC1"), ("OC1C2OC3C(O)C2C13", "OC1C2OC3C(O)C3C12")]


def same(smiles, features, hashes="hashes"):
    """Return whether all molecules are copies of one, or with `hashes="exact_hashes"` equal to a network."""
    return len(np.unique(getattr(with_hashes(PackedMolecules.from_smiles(smiles, features=features)), hashes))) == 1


@pytest.mark.parametrize("features", ["qm9", "zinc", "general:1", "general:no_stereo"])
@pytest.mark.parametrize("smiles", [["CCO", "OCC", "C(O)C"], ["c1ccccc1O", "C1=CC=CC=C1O"], ["OC[C@H](F)N", "OC[C@@H](F)N"]])
def test_copies_are_the_same(smiles, features):
    assert same(smiles, features) and same(smiles, features, "exact_hashes")


@pytest.mark.parametrize(
    ("smiles", "features"),
    [
        (["CC", "C=C"], {"qm9", "general"}),
        (["CC(=O)[O-]", "CC(=O)O"], {"qm9", "zinc", "general"}),
        (["CF", "CCl"], {"zinc", "general"}),
        (["OC[C@H](F)N", "OC[C@@H](F)N"], {"general"}),
        (["OC[C@H](F)N", "OCC(F)N"], {"general"}),
    ],
)
def test_what_the_features_see_differs(smiles, features):
    assert not any(same(smiles, one, hashes) for one in features for hashes in ("hashes", "exact_hashes"))


@pytest.mark.parametrize(
    ("smiles", "features"),
    [
        (["[H]OCC", "OCC", "O[13CH2]C"], {"qm9", "general"}),  # zinc's atom types have the hydrogens that brackets state
        (["OC[C@H](F)N", "OCC(F)N"], {"qm9", "general:1", "general:no_stereo"}),
    ],
)
def test_what_the_features_do_not_see_is_the_same(smiles, features):
    assert all(same(smiles, one, hashes) for one in features for hashes in ("hashes", "exact_hashes"))


@pytest.mark.parametrize(
    ("pair", "features"),
    [
        (["F/C=C/C", "F/C=C\\C"], {"general", "ogb", "chemprop"}),
        (["CC", "C=C"], {"zinc"}),  # whose atom types say nothing of bonds
        (["c1ccccc1", "C1CCCCC1"], {"zinc", "zinc12k"}),
        (["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"], {"ogb", "chemprop"}),
    ],
)
def test_molecules_that_differ_in_bonds_or_chiral_tags_are_copies_and_not_equal(pair, features):
    for one in features:
        assert same(pair, one) and not same(pair, one, "exact_hashes")


@pytest.mark.parametrize("features", ["general", "ogb", "chemprop", "zinc", "qm9"])
@pytest.mark.parametrize("smiles", ["C[C@H](N)C(=O)O", "C[C@H]1CC[C@@H](O)CC1", "C/C=C/C=C\\C", "Cc1ccc2ccccc2c1C"])
def test_a_molecule_is_a_copy_of_itself_in_any_order(features, smiles):
    mol = Chem.MolFromSmiles(smiles)
    written = [Chem.MolToSmiles(mol, rootedAtAtom=atom, canonical=False) for atom in range(mol.GetNumAtoms())]
    assert same(written, features)
    chiral_tags = "@" in smiles and features in ("ogb", "chemprop")
    assert same(written, features, "exact_hashes") != chiral_tags


def test_both_kekule_forms_are_equal():
    """The two forms of 1,2-dimethylbenzene differ in whether the bond between its substituted atoms is double."""
    ring = [(n, (n + 1) % 6) for n in range(6)] + [(0, 6), (1, 7)]
    edges = torch.tensor([*ring, *((end, start) for start, end in ring)]).T
    forms = [torch.tensor(([double ^ 1, double] * 3 + [0, 0]) * 2) for double in (0, 1)]
    molecules = [Data(torch.ones(8, 1), edges, torch.nn.functional.one_hot(form, 2).float()) for form in forms]
    molecules.append(Data(torch.ones(8, 1), edges, torch.nn.functional.one_hot(torch.zeros_like(forms[0]), 2).float()))
    done = with_hashes(PackedMolecules.from_pyg(molecules))
    assert first_copies(done.hashes).tolist() == [0, 0, 0]
    assert first_copies(done.exact_hashes).tolist() == [0, 0, 2]


@pytest.mark.parametrize("pair", ALIKE_TO_REFINEMENT)
@pytest.mark.parametrize("features", ["qm9", "general:1"])  # version 3 of general tells them apart by the sizes of rings
def test_canonical_smiles_decide_where_hashes_meet(pair, features):
    rewritten = [Chem.MolToSmiles(Chem.MolFromSmiles(one), rootedAtAtom=1) for one in pair]
    molecules = PackedMolecules.from_smiles([*pair, *rewritten], features=features)
    hashed = with_hashes(molecules)
    assert first_copies(hashed.hashes).tolist() == first_copies(hashed.exact_hashes).tolist() == [0, 1, 0, 1]
    alone = [with_hashes(PackedMolecules.from_smiles([one], features=features)).hashes[0] for one in pair]
    assert alone[0] == alone[1]  # otherwise the pair would show nothing


def shuffled(data, rng):
    """Return a molecule with its atoms in another order."""
    order = torch.from_numpy(rng.permutation(data.num_nodes))
    kept = {name: getattr(data, name, None) for name in ("y", "edge_attr", "descriptors")}
    return Data(x=data.x[order], edge_index=order.argsort()[data.edge_index], **kept)


@settings(max_examples=40)
@given(molecules=molecule_lists(max_size=8, sizes=st.integers(1, 12)), seed=st.integers(0, 2**31))
def test_hashes_depend_on_no_order_of_atoms_and_on_no_other_molecule(molecules, seed):
    """Molecules without SMILES, with duplicate bonds and self-loops, each have a copy with atoms in another order."""
    rng = np.random.default_rng(seed)
    copies = [shuffled(one, rng) for one in molecules]
    both, backwards = (with_hashes(PackedMolecules.from_pyg(one)) for one in (molecules + copies, molecules[::-1]))
    count = len(molecules)
    for name in ("hashes", "exact_hashes"):
        one, other = getattr(both, name)[:count], getattr(both, name)[count:]
        assert np.array_equal(one, other)
        assert np.array_equal(one[::-1], getattr(backwards, name))


def test_a_selection_and_a_saved_set_keep_them(tmp_path):
    molecules = with_hashes(PackedMolecules.from_smiles(["CCO", "C", "OCC"]))
    molecules.save(tmp_path / "set")
    chosen, loaded, joined = molecules[[2, 1]], PackedMolecules.load(tmp_path / "set"), PackedMolecules.concat([molecules, molecules])
    for name in ("hashes", "exact_hashes"):
        assert np.array_equal(getattr(chosen, name), getattr(molecules, name)[[0, 1]])
        assert np.array_equal(getattr(loaded, name), getattr(molecules, name))
        assert getattr(joined, name) is None


def test_a_set_without_them_is_as_before(tmp_path):
    molecules = PackedMolecules.from_smiles(["CCO", "C"])
    molecules.save(tmp_path / "set")
    assert not (tmp_path / "set" / "hashes.npy").exists()
    assert PackedMolecules.load(tmp_path / "set").hashes is None
    with pytest.raises(UserError, match="leaves of this set are one row"):
        with_hashes(merge_leaves(molecules))
