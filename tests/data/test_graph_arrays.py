"""The quick way from molecules to arrays against the plain one: every atom and bond asked for by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase

from molgcn.data.atoms import FEATURIZERS, UnsupportedAtomError
from molgcn.data.graph_arrays import GraphArrays
from molgcn.data.molecules import InvalidMoleculeError, read_smiles

SMILES = [
    "C", "CCO", "c1ccccc1", "C#N", "[NH4+]", "CC(=O)[O-]", "FC(F)F", "O=c1cc[nH]cc1", "[2H]OC", "[H][H]", "C.O", "[CH3]", "[CH2]C",
    "N[C@@H](C)C(=O)O", "[H]C([H])([H])F", "C[N+](=O)[O-]", "c1cc[nH]c1", "O=C=O", "C1=CC=CN1", "[O-][n+]1ccccc1",
    "OC(F)=N", "FC#CF", "[NH3+]CC(=O)[O-]",
]  # fmt: skip


def plain(mol, featurizer):
    """Feature rows and bonds, one call an atom and a bond, of the molecule with its hydrogens as atoms."""
    read_from = Chem.Mol(mol)
    if featurizer.kekulize:
        Chem.Kekulize(read_from, clearAromaticFlags=True)
    rows = np.stack([featurizer.encode(featurizer.key(atom)) for atom in read_from.GetAtoms()])
    bonds = {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()}
    return rows, bonds | {(j, i) for i, j in bonds}


def check(smiles, name):
    featurizer = FEATURIZERS[name]
    graphs, expected = GraphArrays(featurizer), []
    with rdBase.BlockLogs():
        for text in smiles:
            try:
                graphs.add(read_smiles(text, "folded" if featurizer.hydrogens == "explicit" else "implicit"))
                expected.append(plain(read_smiles(text, featurizer.hydrogens), featurizer))
            except (InvalidMoleculeError, UnsupportedAtomError):
                continue
    arrays = graphs.arrays()
    atom = bond = 0
    for (rows, bonds), num_nodes, num_edges in zip(expected, arrays["num_nodes"], arrays["num_edges"], strict=True):
        np.testing.assert_array_equal(arrays["table"][arrays["codes"][atom : atom + num_nodes]], rows)
        edges = arrays["edge_index"][:, bond : bond + num_edges].T.tolist()
        assert len(edges) == len(bonds)
        assert {tuple(edge) for edge in edges} == bonds
        atom, bond = atom + num_nodes, bond + num_edges
    assert len(arrays["codes"]) == atom
    return len(expected)


@pytest.mark.parametrize("name", FEATURIZERS)
def test_every_atom_and_bond(name):
    assert check(SMILES, name) > 15


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet="CNOFHcno()=#12[]+-@.", max_size=14), max_size=12), st.sampled_from(sorted(FEATURIZERS)))
def test_any_molecules(smiles, name):
    check(smiles, name)


def test_long_chains():
    assert check(["C" * 300, "C" * 256, "C"], "general") == 3


def test_a_refused_molecule_leaves_nothing_behind():
    graphs = GraphArrays(FEATURIZERS["qm9"])
    graphs.add(read_smiles("CO", "folded"))
    with pytest.raises(UnsupportedAtomError):
        graphs.add(read_smiles("CS", "folded"))
    arrays = graphs.arrays()
    assert arrays["num_nodes"].tolist() == [6]
    assert arrays["edge_index"].shape == (2, 10)
    assert len(arrays["table"]) == 3


def test_hydrogens_count_as_atoms():
    with pytest.raises(InvalidMoleculeError, match="atoms, at most 65,535"):
        GraphArrays(FEATURIZERS["qm9"]).add(read_smiles("C" * 22_000, "folded"))


def test_none_at_all():
    arrays = GraphArrays(FEATURIZERS["general"]).arrays()
    assert arrays["edge_index"].shape == (2, 0)
    assert arrays["table"].shape == (0, 43)
