"""All featurisers keep the promises of the table of featurisers."""

import numpy as np
import pytest
from rdkit import Chem

from molgcn.data import PackedMolecules
from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.featurizers.fields import AtomFields, BondFields
from molgcn.data.mol_bytes import plain_mol_bytes, with_labels
from molgcn.errors import UserError

featurize = PackedMolecules.from_smiles

NUMBERS = {  # numbers of columns of atoms and of bonds
    "qm9": (11, 4), "qm9_charge": (12, 4), "zinc": (28, 4), "zinc12k": (21, 4), "general": (53, 16), "ogb": (174, 13), "chemprop": (72, 14),
    "general:1": (43, 0), "general:no_stereo": (53, 16), "general:explicit_hydrogens": (53, 16),
    "chemprop:explicit_hydrogens:no_stereo": (72, 14),
}  # fmt: skip


@pytest.mark.parametrize("features", NUMBERS)
def test_rows_are_as_long_as_the_names_and_the_name_comes_back(features):
    featurizer = get_featurizer(features)
    assert (featurizer.num_features, featurizer.num_bond_features) == NUMBERS[features]
    assert len(featurizer.encode(AtomFields(6))) == len(set(featurizer.names)) == featurizer.num_features
    if featurizer.bonds:
        assert len(featurizer.encode_bond(BondFields(1))) == len(set(featurizer.bond_names)) == featurizer.num_bond_features
    assert featurizer.spelled == features
    assert get_featurizer(featurizer.versioned) == featurizer


def test_every_name_is_here():
    assert {features for features in NUMBERS if ":" not in features} == FEATURIZERS.keys()


@pytest.mark.parametrize("features", FEATURIZERS)
def test_a_row_tells_its_element(features):
    featurizer = FEATURIZERS[features]
    for number in {"qm9": (1, 6, 9), "qm9_charge": (1, 6, 9), "zinc": (6, 17, 53), "zinc12k": (6, 17, 53)}.get(features, range(96)):
        assert featurizer.element(featurizer.encode(AtomFields(number))) == number


@pytest.mark.parametrize(
    "features",
    ["smiles", "", "general:", "general:9", "general:3:1", "general:stereo", "general:no_stereo:3", "general:no_stereo:explicit_hydrogens"],
)
def test_other_names_are_refused(features):
    names = "qm9, zinc, general, qm9_charge, zinc12k, ogb, chemprop"
    with pytest.raises(UserError, match=rf"Use one of: {names}|There are: 1, 3"):
        get_featurizer(features)


STEREOISOMERS = [
    ("C[C@H](F)O", "C[C@@H](F)O", "CC(F)O"),
    ("F/C=C/F", r"F/C=C\F", "FC=CF"),
    ("C[C@H]1CC[C@@H](F)CC1", "C[C@H]1CC[C@H](F)CC1", "CC1CCC(F)CC1"),
]


def rows(smiles, features):
    """Return the rows of atoms in their order, and of bonds."""
    molecules = featurize([smiles], features=features)
    return molecules.node_features().tolist(), molecules.edge_features().tolist()


@pytest.mark.parametrize("isomers", STEREOISOMERS)
@pytest.mark.parametrize("features", ["general", "ogb", "chemprop"])
def test_stereochemistry_is_seen_and_can_be_turned_off(isomers, features):
    one, other, unknown = (rows(smiles, features) for smiles in isomers)
    assert one != other
    assert one != unknown
    assert (
        rows(isomers[0], f"{features}:no_stereo")
        == rows(isomers[1], f"{features}:no_stereo")
        == unknown
        == rows(isomers[2], f"{features}:no_stereo")
    )


def test_the_others_have_nothing_to_turn_off():
    for features in ("qm9", "zinc", "general:1"):
        assert get_featurizer(features).without_stereo() == get_featurizer(features)
        assert get_featurizer(f"{features}:no_stereo").spelled == features


@pytest.mark.parametrize("features", ["general", "ogb", "chemprop"])
def test_hydrogens_can_be_atoms_as_rdkit_adds_them(features):
    """The oracle reads every atom and bond of RDKit's own molecule with hydrogens by RDKit's functions."""
    smiles = ["C[C@H](F)O", "N[C@@H](C)C(=O)O", "[NH4+]", r"F/C=C\O", "c1cc[nH]c1", "[CH3][2H]", "[H][H]", "[CH2]C", "O=S(=O)(O)C#C"]
    featurizer = get_featurizer(f"{features}:explicit_hydrogens")
    for text in smiles:
        mol = Chem.AddHs(Chem.MolFromSmiles(text.replace("2H", "H")))
        atoms, ends, bonds = plain_mol_bytes(mol)
        atoms, bonds = with_labels(mol, atoms, bonds) if featurizer.stereo == "labels" else (atoms, bonds)
        expected = [get_featurizer(features).encode(AtomFields.unpacked(key)) for key in np.frombuffer(atoms, np.uint64).tolist()]
        of_bonds = [featurizer.encode_bond(BondFields.unpacked(key)) for key in np.frombuffer(bonds, np.uint32).tolist()]
        graph = featurize([text], features=featurizer.spelled).to_pyg()[0]
        np.testing.assert_array_equal(graph.x.numpy(), expected, text)
        both = {tuple(pair): row for pair, row in zip(np.frombuffer(ends, np.uint16).reshape(-1, 2).tolist(), of_bonds, strict=True)}
        for pair, row in zip(graph.edge_index.T.tolist(), graph.edge_attr.numpy(), strict=True):
            np.testing.assert_array_equal(row, both[tuple(pair) if tuple(pair) in both else tuple(pair[::-1])], text)
        assert graph.num_edges == 2 * len(both)


def test_hydrogens_are_atoms_already_or_cannot_be():
    assert get_featurizer("qm9").with_hydrogens() == get_featurizer("qm9")
    for features in ("zinc", "general:1", "general:reac_diff"):
        with pytest.raises(UserError, match=f"does not go with features={features}, .*Use features=general, ogb or chemprop, or qm9"):
            get_featurizer(features).with_hydrogens()
    with pytest.raises(UserError, match=r"cannot describe reactions\. Use .* without dataset\.explicit_hydrogens"):
        get_featurizer("general:explicit_hydrogens:reac_diff")


@pytest.mark.parametrize("features", ["qm9", "general"])
def test_molecules_without_bonds(features):
    molecules = featurize(["[He]" if features == "general" else "F", "[Na+].[Cl-]" if features == "general" else "[F]"], features=features)
    assert molecules.edge_table.shape[1] == NUMBERS[features][1]
    assert molecules.edge_features().shape == (molecules.num_edges, NUMBERS[features][1])
    np.testing.assert_array_equal(molecules[[1, 0]].edge_features().shape, molecules.edge_features().shape)
