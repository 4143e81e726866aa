"""Properties of molecules are counted, and molecules unlike the training's are reported."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase

from molgcn.data.applicability import Contents, common_domain, contents_of, describe_unlike, domain_of, is_domain, num_fragments
from molgcn.data.featurizers import FEATURIZERS
from molgcn.data.packed import PackedMolecules

SMILES = ["C", "[U]", "*CC", "CC.O", "C1.C1", "CCO", "[Pu].[U]", "[H][H]", "[2H]O[2H]", "C" * 300 + ".Cl", "[Og]", "[Na+].[Cl-].CC(=O)O"]


def contents(smiles, features="general", written=True):
    molecules = PackedMolecules.from_smiles(smiles, features=features, on_error="skip", num_workers=0)
    if not written:
        molecules.smiles = None
    return contents_of(molecules)


@pytest.mark.parametrize("written", [True, False])
def test_what_molecules_hold(written):
    held = contents(SMILES, written=written)
    expected = [{6}, {92}, {0, 6}, {6, 8}, {6}, {6, 8}, {92, 94}, {1}, {8}, {6, 17}, {118}, {6, 8, 11, 17}]
    assert held.elements == Counter(map(frozenset, expected))
    assert held.sizes == Counter([1, 1, 2, 3, 2, 3, 2, 0, 1, 301, 1, 6])
    assert held.mixtures == 4


@settings(max_examples=60)
@given(
    st.lists(st.text(alphabet="CNOFcno()=#12[]+-H.*", min_size=1, max_size=14), min_size=1, max_size=12),
    st.sampled_from(sorted(FEATURIZERS)),
)
def test_it_is_what_rdkit_says(smiles, features):
    molecules = PackedMolecules.from_smiles(
        ["C" if features != "zinc" else "CC", *smiles], features=features, on_error="skip", num_workers=0
    )
    with rdBase.BlockLogs():
        mols = [Chem.MolFromSmiles(text.strip()) for text in molecules.smiles]
    np.testing.assert_array_equal(num_fragments(molecules), [len(Chem.GetMolFrags(mol)) for mol in mols])
    held = contents_of(molecules)
    assert held.mixtures == sum(len(Chem.GetMolFrags(mol)) > 1 for mol in mols)
    assert held.sizes == Counter(mol.GetNumHeavyAtoms() for mol in mols)
    heavy = [frozenset(atom.GetAtomicNum() for atom in mol.GetAtoms() if atom.GetAtomicNum() != 1) for mol in mols]
    found = Counter()
    for elements, count in held.elements.items():
        found[elements - {1}] += count
    assert found == Counter(heavy)


def test_parts_add_up():
    assert contents(SMILES[:5]) + contents(SMILES[5:]) == contents(SMILES)
    assert Contents() + contents(SMILES) == contents(SMILES)


def test_the_line():
    domain = domain_of(contents(["CC", "OCCCC", "CCO"]))
    assert domain == {"elements": [6, 8], "heavy_atoms": [2, 5], "mixtures": False, "mixture_share": 0.0}
    assert describe_unlike(contents(["CCO", "CC", "OCC"]), domain) == ""
    assert describe_unlike(contents(SMILES), domain) == (
        "6 with elements that no training molecule has (U 2, Cl 2, Pu 1, H 1, Og 1, Na 1), 1 with dummy atoms (*), 4 of several "
        "fragments (salts, mixtures), 7 outside the training molecules' 2 to 5 heavy atoms"
    )


def test_without_knowing_the_training():
    """For an older checkpoint, and in training itself, properties that are rare in every training set are counted."""
    assert describe_unlike(contents(SMILES)) == "1 with dummy atoms (*), 4 of several fragments (salts, mixtures)"
    assert describe_unlike(contents(["CCO", "[U]"])) == ""


def test_what_training_held_is_not_unlike_it():
    assert describe_unlike(contents(SMILES), domain_of(contents(SMILES))) == ""


def test_one_salt_says_little_about_salts():
    domain = domain_of(contents(["CCO"] * 300 + ["CCO.Cl"]))
    said = "3 of several fragments (salts, mixtures, as 0.3% of the training molecules)"
    assert describe_unlike(contents(["CCO", *["CCO.Cl"] * 3]), domain) == said
    assert describe_unlike(contents(["CCO"] * 400 + ["CCO.Cl"] * 2), domain) == ""  # as rare as in training
    assert describe_unlike(contents(["CCO.Cl"] * 9), domain_of(contents(["CCO"] * 90 + ["CCO.Cl"]))) == ""
    older = {key: value for key, value in domain.items() if key != "mixture_share"}
    assert is_domain(older) and describe_unlike(contents(["CCO.Cl"] * 9), older) == ""


def test_of_several_models_it_is_what_all_were_trained_on():
    first, second = domain_of(contents(["CC", "CCCO.Cl"])), domain_of(contents(["CCO", "CCCCN.O"]))
    assert common_domain([first, None, second]) == {"elements": [6, 8], "heavy_atoms": [3, 5], "mixtures": True, "mixture_share": 0.5}
    assert common_domain([None, None]) is None


@pytest.mark.parametrize(
    "value", [None, [], {}, {"elements": [6], "heavy_atoms": [1], "mixtures": True}, {"elements": 6, "heavy_atoms": [1, 2]}]
)
def test_what_is_no_domain(value):
    assert not is_domain(value)
    assert is_domain(domain_of(contents(["C"])))
