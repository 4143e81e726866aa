"""The quick way from molecules to arrays against the plain one: every atom and bond asked for by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase

from molgcn.data.atoms import FEATURIZERS, GENERAL_ELEMENTS, QM9_ELEMENTS, ZINC_TYPES
from molgcn.data.graph_arrays import GraphArrays
from molgcn.data.molecules import InvalidMoleculeError, count_hydrogens, smiles_reader, without_atom_maps

SMILES = [
    "C", "CCO", "c1ccccc1", "C#N", "[NH4+]", "CC(=O)[O-]", "FC(F)F", "O=c1cc[nH]cc1", "[2H]OC", "[H][H]", "C.O", "[CH3]", "[CH2]C",
    "N[C@@H](C)C(=O)O", "[H]C([H])([H])F", "C[N+](=O)[O-]", "c1cc[nH]c1", "O=C=O", "C1=CC=CN1", "[O-][n+]1ccccc1",
    "OC(F)=N", "FC#CF", "[NH3+]CC(=O)[O-]", "F[C@H]C", "C[C@H](C)O", "F/C=C/F", "[H]/N=C/F", "*C", "[CH3:1]O", "[13CH4]", "[nH+]1cc[nH]c1",
    "C[P@H]F", "[cH-]1cccc1", "c1cc[pH]c1", "F[P-](F)(F)(F)(F)F", "[NH3]->[Cu+2]", "C12C3C4C1C5C4C3C25", "N(=O)(=O)C", "C" * 260,
]  # fmt: skip


def qm9_row(atom):
    hybrids = [str(atom.GetHybridization()) == name for name in ("SP", "SP2", "SP3")]
    elements = [atom.GetAtomicNum() == number for number in QM9_ELEMENTS]
    return any(elements) and [*elements, atom.GetAtomicNum(), atom.GetIsAromatic(), *hybrids, atom.GetTotalNumHs(True)]


def zinc_row(atom):
    one_hot = [(atom.GetSymbol(), atom.GetNumExplicitHs(), atom.GetFormalCharge()) == atom_type for atom_type in ZINC_TYPES]
    return any(one_hot) and one_hot


def general_row(atom):
    hybrid = str(atom.GetHybridization())
    row = []
    for value, choices in (
        (atom.GetAtomicNum(), GENERAL_ELEMENTS),
        (atom.GetDegree(), range(6)),
        (atom.GetFormalCharge(), range(-2, 3)),
        (atom.GetTotalNumHs(True), range(5)),
        (hybrid, ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")),
    ):
        row += [*(value == choice for choice in choices), value not in choices]
    mass = Chem.GetPeriodicTable().GetAtomicWeight(atom.GetAtomicNum())
    return [*row, atom.GetIsAromatic(), atom.IsInRing(), mass / 100]


def qm9_charge_row(atom):
    row = qm9_row(atom)
    return row and [*row, atom.GetFormalCharge()]


ROWS = {"qm9": qm9_row, "zinc": zinc_row, "general": general_row, "qm9_charge": qm9_charge_row}


def plain(smiles, name):
    """Feature rows and bonds, one call an atom and a bond, of the molecule with its hydrogens as atoms; None where there is no such row."""
    parameters = Chem.SmilesParserParams()
    parameters.parseName = parameters.allowCXSMILES = False
    parameters.removeHs = FEATURIZERS[name].hydrogens == "explicit"
    mol = Chem.MolFromSmiles(without_atom_maps(smiles.strip()), parameters)
    if mol is None or mol.GetNumAtoms() == 0:
        return None
    if FEATURIZERS[name].hydrogens == "explicit":
        mol = Chem.AddHs(mol)
        mol = Chem.RenumberAtoms(mol, sorted(range(mol.GetNumAtoms()), key=lambda i: mol.GetAtomWithIdx(i).GetAtomicNum() == 1))
    else:
        mol = count_hydrogens(mol)
    if name == "zinc":
        Chem.Kekulize(mol, clearAromaticFlags=True)
    rows = [ROWS[name](atom) for atom in mol.GetAtoms()]
    bonds = {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()}
    return (np.array(rows, np.float32), bonds | {(j, i) for i, j in bonds}) if all(rows) else None


def check(smiles, name):
    featurizer = FEATURIZERS[name]
    read = smiles_reader("folded" if featurizer.hydrogens == "explicit" else "written")
    graphs, expected = GraphArrays(featurizer), []
    with rdBase.BlockLogs():
        for text in smiles:
            try:
                graphs.add(read(text))
            except InvalidMoleculeError:
                assert plain(text, name) is None
            else:
                expected.append(plain(text, name))
    arrays, refused = graphs.finish()
    assert sorted(refused) == [number for number, one in enumerate(expected) if one is None]
    expected = [one for one in expected if one is not None]
    atom = bond = 0
    for (rows, bonds), num_nodes, num_edges in zip(expected, arrays["num_nodes"], arrays["num_edges"], strict=True):
        np.testing.assert_array_equal(arrays["table"][arrays["codes"][atom : atom + num_nodes]], rows)
        edges = arrays["edge_index"][:, bond : bond + num_edges].T.tolist()
        assert len(edges) == len(bonds)
        assert {tuple(edge) for edge in edges} == bonds
        atom, bond = atom + num_nodes, bond + num_edges
    assert len(arrays["codes"]) == atom
    assert len(np.unique(arrays["table"], axis=0)) == len(arrays["table"])
    return len(expected)


@pytest.mark.parametrize("name", FEATURIZERS)
def test_every_atom_and_bond(name):
    assert check(SMILES, name) > 15


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet="CNOFHScnop()=#12[]+-@/\\\\.*", max_size=14), max_size=12), st.sampled_from(sorted(FEATURIZERS)))
def test_any_molecules(smiles, name):
    check(smiles, name)


def test_long_chains():
    assert check(["C" * 300, "C" * 256, "C"], "general") == 3


def test_a_refused_molecule_leaves_nothing_behind():
    graphs, read = GraphArrays(FEATURIZERS["qm9"]), smiles_reader("folded")
    for text in ("CO", "CSCl", "[Fe]", "C"):
        graphs.add(read(text))
    arrays, refused = graphs.finish()
    assert list(refused) == [1, 2]
    assert refused[1].startswith("S is not one of")
    assert refused[2].startswith("Fe is not one of")
    assert arrays["num_nodes"].tolist() == [6, 5]
    assert arrays["edge_index"].shape == (2, 18)
    assert len(arrays["table"]) == 4


def test_rows_are_in_the_order_of_their_first_atoms():
    graphs, read = GraphArrays(FEATURIZERS["qm9"]), smiles_reader("folded")
    for text in ("O", "C#N", "C"):
        graphs.add(read(text))
    arrays, _ = graphs.finish()
    np.testing.assert_array_equal(arrays["table"][:, [5, 10]], [[8, 2], [1, 0], [6, 1], [7, 0], [6, 4]])
    np.testing.assert_array_equal(arrays["codes"], [0, 1, 1, 2, 3, 1, 4, 1, 1, 1, 1])


def test_hydrogens_count_as_atoms():
    with pytest.raises(InvalidMoleculeError, match="66,002 atoms, at most 65,535"):
        GraphArrays(FEATURIZERS["qm9"]).add(smiles_reader("folded")("C" * 22_000))
    with pytest.raises(InvalidMoleculeError, match="66,000 atoms, at most 65,535"):
        GraphArrays(FEATURIZERS["general"]).add(smiles_reader("implicit")("C" * 66_000))


@pytest.mark.parametrize("texts", [[], ["[Fe]"]])
def test_none_at_all(texts):
    graphs = GraphArrays(FEATURIZERS["qm9"])
    for text in texts:
        graphs.add(smiles_reader("folded")(text))
    arrays, refused = graphs.finish()
    assert len(refused) == len(texts)
    assert arrays["edge_index"].shape == (2, 0)
    assert arrays["table"].shape == (0, 11)
    assert arrays["codes"].shape == arrays["num_nodes"].shape == (0,)
