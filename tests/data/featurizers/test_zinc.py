"""features=zinc and zinc12k have the benchmark's atom types and Kekulé bonds."""

from collections import Counter

import pytest
from rdkit import Chem

from molgcn.data import PackedMolecules
from molgcn.data.featurize import featurize_items
from molgcn.data.featurizers.zinc import TYPES, TYPES_12K, ZINC
from molgcn.errors import UserError

featurize = PackedMolecules.from_smiles

AROMATIC = ["c1ccccc1", "c1ccc2[nH]ccc2c1", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "[O-][n+]1ccccc1", "c1ccsc1", "C=CC#N", "CC(=O)Nc1ccc(O)cc1"]


@pytest.mark.parametrize("features", ["zinc", "zinc12k"])
@pytest.mark.parametrize("smiles", AROMATIC)
def test_bonds_are_those_of_the_kekule_form(smiles, features):
    mol = Chem.MolFromSmiles(smiles)
    molecules = featurize([smiles], features=features)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    expected = {}
    for bond in mol.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        expected |= dict.fromkeys((ends, ends[::-1]), str(bond.GetBondType()).lower())
    data = molecules.to_pyg()[0]
    found = {tuple(pair): ZINC.bond_names[row.argmax()] for pair, row in zip(data.edge_index.T.tolist(), data.edge_attr, strict=True)}
    assert found == expected
    assert molecules.edge_table.sum(axis=1).tolist() == [1] * len(molecules.edge_table)


@pytest.mark.parametrize("smiles", AROMATIC)
def test_the_number_of_double_bonds_does_not_depend_on_the_order(smiles):
    mol = Chem.MolFromSmiles(smiles)
    turned = Chem.RenumberAtoms(mol, list(range(mol.GetNumAtoms()))[::-1])
    orders = (smiles, Chem.MolToSmiles(turned, canonical=False))
    counts = [Counter(map(tuple, featurize([one], features="zinc").edge_features().tolist())) for one in orders]
    assert counts[0] == counts[1]


def test_the_molecule_itself_stays_aromatic():
    """The molecule's SMILES and label are computed from its aromatic form."""
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("c1ccccc1O"))
    assert featurize_items([block], features="zinc", kind="sdf", num_workers=0).smiles == ["Oc1ccccc1"]


def test_the_21_types_are_the_first_of_the_28():
    assert TYPES[:21] == TYPES_12K
    narrow, wide = (featurize(["CC[NH3+]", "C[S+](C)C"], features=features).node_features() for features in ("zinc12k", "zinc"))
    assert (narrow == wide[:, :21]).all()
    assert not wide[:, 21:].any()
    assert narrow.sum(axis=1).tolist() == [1] * len(narrow)


def test_a_type_outside_is_said_and_where_to_go():
    with pytest.raises(UserError, match=r"atom type 'P H1' is not one of the 21 of features=zinc12k; use features=zinc, which has 28"):
        featurize(["C", "C[PH]C"], features="zinc12k")
    with pytest.raises(UserError, match=r"atom type 'Si H3' is not one of the 28 of features=zinc; use features=general"):
        featurize(["C[SiH3]"], features="zinc")


def test_another_bond_is_none_and_no_reason_to_refuse():
    molecules = featurize(["CN(->[O])C"], features="zinc")
    assert {ZINC.bond_names[row.argmax()] for row in molecules.edge_features()} == {"none", "single"}
