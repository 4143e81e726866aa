"""Molecules are the same if and only if the network gets the same input for them."""

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


def same(smiles, features):
    """Return whether all molecules are the same."""
    return len(np.unique(with_hashes(PackedMolecules.from_smiles(smiles, features=features)).hashes)) == 1


@pytest.mark.parametrize("features", ["qm9", "zinc", "general:1", "general:no_stereo"])
@pytest.mark.parametrize("smiles", [["CCO", "OCC", "C(O)C"], ["c1ccccc1O", "C1=CC=CC=C1O"], ["OC[C@H](F)N", "OC[C@@H](F)N"]])
def test_copies_are_the_same(smiles, features):
    assert same(smiles, features)


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
    assert not any(same(smiles, one) for one in features)


@pytest.mark.parametrize(
    ("smiles", "features"),
    [
        (["[H]OCC", "OCC", "O[13CH2]C"], {"qm9", "general"}),  # zinc's atom types have the hydrogens that brackets state
        (["OC[C@H](F)N", "OCC(F)N"], {"qm9", "general:1", "general:no_stereo"}),
        (["CC", "C=C", "C#C"], {"zinc"}),  # whose atom types say nothing of bonds
    ],
)
def test_what_the_features_do_not_see_is_the_same(smiles, features):
    assert all(same(smiles, one) for one in features)


@pytest.mark.parametrize("pair", ALIKE_TO_REFINEMENT)
@pytest.mark.parametrize("features", ["qm9", "general:1"])  # version 3 of general tells them apart by the sizes of rings
def test_canonical_smiles_decide_where_hashes_meet(pair, features):
    rewritten = [Chem.MolToSmiles(Chem.MolFromSmiles(one), rootedAtAtom=1) for one in pair]
    molecules = PackedMolecules.from_smiles([*pair, *rewritten], features=features)
    assert first_copies(with_hashes(molecules).hashes).tolist() == [0, 1, 0, 1]
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
    both = with_hashes(PackedMolecules.from_pyg(molecules + copies)).hashes
    count = len(molecules)
    assert np.array_equal(both[:count], both[count:])
    assert np.array_equal(both[:count][::-1], with_hashes(PackedMolecules.from_pyg(molecules[::-1])).hashes)


def test_a_selection_and_a_saved_set_keep_them(tmp_path):
    molecules = with_hashes(PackedMolecules.from_smiles(["CCO", "C", "OCC"]))
    assert np.array_equal(molecules[[2, 1]].hashes, molecules.hashes[[0, 1]])
    molecules.save(tmp_path / "set")
    assert np.array_equal(PackedMolecules.load(tmp_path / "set").hashes, molecules.hashes)
    assert PackedMolecules.concat([molecules, molecules]).hashes is None


def test_a_set_without_them_is_as_before(tmp_path):
    molecules = PackedMolecules.from_smiles(["CCO", "C"])
    molecules.save(tmp_path / "set")
    assert not (tmp_path / "set" / "hashes.npy").exists()
    assert PackedMolecules.load(tmp_path / "set").hashes is None
    with pytest.raises(UserError, match="leaves of this set are one row"):
        with_hashes(merge_leaves(molecules))
