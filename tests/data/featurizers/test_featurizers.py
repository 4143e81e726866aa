"""All featurisers keep the promises of the table of featurisers."""

import numpy as np
import pytest

from molgcn.data import PackedMolecules
from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.featurizers.fields import AtomFields, BondFields
from molgcn.errors import UserError

featurize = PackedMolecules.from_smiles

NUMBERS = {  # numbers of columns of atoms and of bonds
    "qm9": (11, 4), "qm9_charge": (12, 4), "zinc": (28, 4), "zinc12k": (21, 4), "general": (53, 16), "ogb": (174, 13), "chemprop": (72, 14),
    "general:1": (43, 0), "general:no_stereo": (53, 16),
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


@pytest.mark.parametrize("features", ["smiles", "", "general:", "general:9", "general:3:1", "general:stereo", "general:no_stereo:3"])
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


@pytest.mark.parametrize("features", ["qm9", "general"])
def test_molecules_without_bonds(features):
    molecules = featurize(["[He]" if features == "general" else "F", "[Na+].[Cl-]" if features == "general" else "[F]"], features=features)
    assert molecules.edge_table.shape[1] == NUMBERS[features][1]
    assert molecules.edge_features().shape == (molecules.num_edges, NUMBERS[features][1])
    np.testing.assert_array_equal(molecules[[1, 0]].edge_features().shape, molecules.edge_features().shape)
