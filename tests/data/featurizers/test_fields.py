"""Fields are encoded as numbers, and numbers decoded to RDKit's names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from molgcn.data.featurizers.fields import (
    ATOM_STEREO,
    BOND_STEREO,
    BOND_STEREOS,
    BOND_TYPES,
    CHIRAL_TAGS,
    HYBRIDIZATIONS,
    AtomFields,
    BondFields,
)

BYTE, NIBBLE = st.integers(0, 255), st.integers(0, 15)
ATOMS = st.builds(
    AtomFields, BYTE, BYTE, BYTE, BYTE, st.integers(-128, 127), NIBBLE, NIBBLE, NIBBLE, st.integers(0, 7), st.integers(0, 1), NIBBLE, NIBBLE
)
BONDS = st.builds(BondFields, BYTE, BYTE, BYTE, BYTE)


@given(ATOMS, BONDS)
def test_fields_come_back_from_their_number(atom, bond):
    assert AtomFields.unpacked(atom.packed()) == atom
    assert BondFields.unpacked(bond.packed()) == bond
    assert (atom.packed() < 1 << 64, bond.packed() < 1 << 32) == (True, True)


@given(ATOMS, BONDS)
def test_stereochemistry_has_a_byte_of_its_own(atom, bond):
    assert atom._replace(chiral_tag=0, cip=0).packed() == atom.packed() & ~(0xFF << 8 * ATOM_STEREO)
    assert bond._replace(stereo=0).packed() == bond.packed() & ~(0xFF << 8 * BOND_STEREO)


def test_what_is_more_counts_as_the_most():
    assert AtomFields.unpacked(AtomFields(6, degree=16, ring_size=400, radicals=9).packed()) == AtomFields(
        6, degree=15, ring_size=15, radicals=7
    )
    assert BondFields.unpacked(BondFields(1, ring_size=400).packed()).ring_size == 255


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (HYBRIDIZATIONS, Chem.HybridizationType),
        (CHIRAL_TAGS, Chem.ChiralType),
        (BOND_TYPES, Chem.BondType),
        (BOND_STEREOS, Chem.BondStereo),
    ],
)
def test_names_are_numbered_as_rdkits(names, kind):
    assert {name: number for number, name in enumerate(names)} == {name: int(value) for name, value in kind.names.items()}
