"""Isotopes, atom maps and written hydrogens change nothing that is made of a molecule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from molgcn.comparison.baselines import fingerprints
from molgcn.data import GraphBatch
from molgcn.data.descriptors.generators import GENERATORS, calculator
from molgcn.data.featurize import featurize_chunk
from molgcn.data.featurizers import FEATURIZERS
from molgcn.data.fingerprints import morgan_fingerprints, murcko_scaffolds
from molgcn.data.identity import with_hashes
from molgcn.data.molecules import smiles_reader, whole_molecule
from molgcn.data.plain_molecule import count_hydrogens, drop_brackets, plain_molecule, without_labels
from molgcn.data.splits.groups import scaffold_groups
from molgcn.domain.distance import distance_to_all
from molgcn.domain.index import DomainIndex

LABELLED = [
    ("[2H]c1c([2H])c([2H])c([2H])c([2H])n1", "c1ccccn1"),
    ("[2H]C([2H])([2H])C(=O)N(C)C", "CC(=O)N(C)C"),
    ("CO[2H]", "CO"),
    ("C[C@H]([2H])O", "CCO"),  # a centre by its isotopes alone
    ("[2H]C([2H])([2H])[C@@H](C)O", "CC(C)O"),
    ("[H]C([H])([H])[C@@H](C)O", "CC(C)O"),
    ("[13CH3][C@H](O)C", "CC(O)C"),
    ("[13CH3][C@@H](O)F", "C[C@@H](O)F"),
    ("[13cH]1[15nH]ccc1", "c1[nH]ccc1"),
    (r"[2H]/C(C)=C/F", r"[H]/C(C)=C/F"),
    ("[18O]=S([13CH3])(=O)[O-].[23Na+]", "O=S(C)(=O)[O-].[Na+]"),
    ("[2H][3H].[2H+]", "[H][H].[H+]"),
    ("[CH3:3][CH2:17][N:1]([CH3:2])[H:9]", "CCNC"),
    ("[cH:1]1[cH:2][nH:3][cH:4][cH:5]1", "c1c[nH]cc1"),
    ("[NH3+:1][C@@H:2]([CH3:3])[C:4](=[O:5])[O-:6]", "[NH3+][C@@H](C)C(=O)[O-]"),
    ("[CH2:5]([CH2:1]1)C[CH2:2]1", "C(C1)CC1"),  # a ring is closed across branches
    ("[CH2:7]1[13CH2].C1", "C1[CH2].C1"),
    ("[2*]C", "*C"),
]


def arrays(text, features, kind="smiles", standardize="none"):
    """Return the graph of an item as its arrays, or the reason why there is none."""
    done = featurize_chunk([text], features=features, kind=kind, label=None, standardize=standardize)
    if done.molecules is None:
        return done.failures
    batch = GraphBatch.from_packed(done.molecules, [0])
    return [one.tolist() for one in (batch.x, batch.edge_index, batch.edge_attr)]


@pytest.mark.parametrize("features", FEATURIZERS)
@pytest.mark.parametrize(("labelled", "plain"), LABELLED, ids=[row[0] for row in LABELLED])
def test_a_graph_has_the_same_rows_in_the_same_order(labelled, plain, features):
    assert arrays(labelled, features) == arrays(plain, features)


@pytest.mark.parametrize(
    ("kind", "features"), [("sdf", "general"), ("sdf", "ogb"), ("sdf", "zinc"), ("molblock", "general"), ("molblock", "ogb")]
)
@pytest.mark.parametrize(("labelled", "plain"), LABELLED[1:5], ids=[row[0] for row in LABELLED[1:5]])
def test_structures_are_read_as_their_smiles(labelled, plain, kind, features):
    mols = [Chem.MolFromSmiles(text) for text in (labelled, plain)]
    first, second = (Chem.MolToMolBlock(Chem.AddHs(mol) if kind == "molblock" else mol) for mol in mols)
    rows = sorted(map(tuple, arrays(first, features, kind)[0]))
    assert rows == sorted(map(tuple, arrays(second, features, kind)[0])) == sorted(map(tuple, arrays(plain, features)[0]))


@pytest.mark.parametrize("standardize", ["largest_fragment", "tautomer"])
@pytest.mark.parametrize(
    ("labelled", "plain"),
    [("[2H]OC(C)=C", "OC(C)=C"), ("[2H]Oc1ccccn1", "Oc1ccccn1"), ("[2H]O[2H].CO", "O.CO"), ("[CH3:1][NH3+:2].[35Cl-]", "C[NH3+].[Cl-]")],
)
def test_a_standard_form_is_that_of_the_plain_molecule(labelled, plain, standardize):
    """RDKit takes deuterium for an atom that no tautomer moves."""
    assert arrays(labelled, "general", standardize=standardize) == arrays(plain, "general", standardize=standardize)


@pytest.mark.parametrize(("labelled", "plain"), LABELLED, ids=[row[0] for row in LABELLED])
def test_whatever_else_is_made_of_a_molecule_leaves_them_out_too(labelled, plain, tmp_path):
    both = [labelled, plain]
    charged = [name for name in GENERATORS if name != "rdkit2d" or not any(sign in plain for sign in ("Na", "*", "[H]"))]  # no charges
    np.testing.assert_array_equal(*map(calculator(charged), both))
    assert len(set(murcko_scaffolds(both))) == len(set(scaffold_groups([*both, "C1CC1C1CC1"])[:2].tolist())) == 1
    one, other = morgan_fingerprints(both)
    assert (one != other).nnz == 0
    np.testing.assert_array_equal(*fingerprints(both))
    done = featurize_chunk(both, features="general", kind="smiles", label=None).packed
    DomainIndex.of(done[[1]].with_data(smiles=[plain]), num_workers=0).save(tmp_path / "plain.npz")
    assert distance_to_all([tmp_path / "plain.npz"], done, both).tolist() == [[1, 0, 0, 0]] * 2
    assert len(set(with_hashes(done).hashes.tolist())) == 1


BASES = [r"CC(=O)Nc1ccc(O)cc1C[C@@H](N)C(=O)[O-]", r"F/C=C\[C@@]1(C)CCOC1", "O=S(=O)(N1CCNCC1)c1ccc2[nH]ccc2c1", "C(C1)(C=C)OC1.[Na+]"]


@settings(max_examples=40)
@given(st.sampled_from(BASES), st.randoms(use_true_random=False))
def test_labels_anywhere_change_nothing(smiles, random):
    plain = Chem.MolToSmiles(Chem.MolFromSmiles(smiles), canonical=False)
    mol = Chem.MolFromSmiles(plain)
    mol = Chem.AddHs(mol, onlyOnAtoms=[atom.GetIdx() for atom in mol.GetAtoms() if random.random() < 0.4] or [0])
    for atom in mol.GetAtoms():
        atom.SetIsotope(random.choice([0, 0, 2 * atom.GetAtomicNum()]))
        atom.SetAtomMapNum(random.choice([0, 0, 7, 31]))
    labelled = Chem.MolToSmiles(mol, canonical=False)
    for features in ("qm9_charge", "zinc", "general", "chemprop"):
        assert arrays(labelled, features) == arrays(plain, features)
    calculate = calculator(["physchem", "morgan", "maccs"])
    np.testing.assert_array_equal(calculate(labelled), calculate(plain))
    assert murcko_scaffolds([labelled]) == murcko_scaffolds([plain])


def test_descriptors_of_an_older_version_still_see_what_its_graph_sees():
    def weights(features):
        done = featurize_chunk(["[2H]OC", "OC"], features=features, kind="smiles", label=None, generators=["rdkit2d"])
        names = done.packed.descriptor_names
        return done.packed.descriptors[:, [names.index("ExactMolWt"), names.index("HeavyAtomCount")]].tolist()

    assert weights("general:1")[0][0] == pytest.approx(weights("general:1")[1][0] + 1.00628, abs=1e-4)
    assert weights("general")[0] == weights("general")[1]


@pytest.mark.parametrize("text", ["CCO", "[CH2]C", "C1CC:2", "C:1", "C[NH3+]", "[nH]1cccc1"])
def test_without_labels_a_text_is_as_it_was(text):
    assert without_labels(text) == text


def test_isotopes_stay_where_they_are_asked_for():
    assert without_labels("[13CH3:2][2H]", isotopes=False) == "[13CH3][2H]"
    assert whole_molecule("[2H]OC", isotopes=True).GetNumAtoms() == 3


def test_brackets_go_where_they_state_what_rdkit_counts():
    mol = Chem.MolFromSmiles("[CH3]c1c[nH]c([CH2])[cH]1.[PH](C)(C)(C)C.[C@H](F)(Cl)Br")
    before = [atom.GetTotalNumHs() for atom in mol.GetAtoms()]
    drop_brackets(mol)
    assert [atom.GetTotalNumHs() for atom in mol.GetAtoms()] == before
    assert [atom.GetSymbol() for atom in mol.GetAtoms() if atom.GetNumExplicitHs()] == ["N", "C", "P", "C"]


def test_hydrogens_that_are_written_as_atoms_are_counted():
    def symbols(mol):
        return [atom.GetSymbol() for atom in mol.GetAtoms()]

    for text in ("[2H]OC", "[2H]/N=C/F", "[2H]c1ccccc1"):
        mol = Chem.MolFromSmiles(text)
        assert "H" in symbols(mol)
        counted = count_hydrogens(mol)
        assert "H" not in symbols(counted)
        assert counted.GetNumAtoms() + 1 == mol.GetNumAtoms()
        before = [atom.GetTotalNumHs(True) for atom in mol.GetAtoms() if atom.GetAtomicNum() > 1]
        assert [atom.GetTotalNumHs() for atom in counted.GetAtoms()] == before
    for text in ("[H][H]", "[2H+]", "C"):
        assert symbols(count_hydrogens(Chem.MolFromSmiles(text))) == symbols(smiles_reader("counted")(text))


def test_a_plain_molecule_is_a_copy_where_it_changes():
    mol = Chem.MolFromSmiles("[2H]O[13CH3]")
    assert Chem.MolToSmiles(plain_molecule(mol)) == "CO"
    assert Chem.MolToSmiles(mol) == "[2H]O[13CH3]"
