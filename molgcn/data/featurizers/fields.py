"""The fields that featurisers read from RDKit's atoms and bonds, small numbers that are packed into 64 bits for an atom and 32 for a bond.

Feature rows repeat (QM9 has a few dozen), and atoms or bonds of equal fields have equal rows, so that each row is encoded once.
"""

from __future__ import annotations

from typing import NamedTuple, Self

HYBRIDIZATIONS = ("UNSPECIFIED", "S", "SP", "SP2", "SP3", "SP2D", "SP3D", "SP3D2", "OTHER")  # numbered as rdkit.Chem.HybridizationType
CHIRAL_TAGS = (  # numbered as rdkit.Chem.ChiralType
    *("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", "CHI_TETRAHEDRAL", "CHI_ALLENE"),
    *("CHI_SQUAREPLANAR", "CHI_TRIGONALBIPYRAMIDAL", "CHI_OCTAHEDRAL"),
)
BOND_TYPES = (  # numbered as rdkit.Chem.BondType
    *("UNSPECIFIED", "SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE", "QUINTUPLE", "HEXTUPLE", "ONEANDAHALF", "TWOANDAHALF", "THREEANDAHALF"),
    *("FOURANDAHALF", "FIVEANDAHALF", "AROMATIC", "IONIC", "HYDROGEN", "THREECENTER", "DATIVEONE", "DATIVE", "DATIVEL", "DATIVER"),
    *("OTHER", "ZERO"),
)
BOND_STEREOS = (  # numbered as rdkit.Chem.BondStereo
    *("STEREONONE", "STEREOANY", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOATROPCW", "STEREOATROPCCW"),
)
CIP_LABELS = ("", "R", "S", "r", "s")  # r and s are the labels of pseudoasymmetric centres, which a reflection does not change


class AtomFields(NamedTuple):
    """The fields of an `rdkit.Chem.Atom`. When packed, a number too large for its bits becomes the largest that fits."""

    number: int  # atomic number, 0 for a dummy atom, 8 bits
    hidden_hs: int = 0  # number of hydrogens that are not atoms of the molecule (GetTotalNumHs()), 8 bits
    num_hs: int = 0  # number of all hydrogens, atoms of the molecule or not (GetTotalNumHs(True)), 8 bits
    explicit_hs: int = 0  # number of those `hidden_hs` that were stated in brackets (GetNumExplicitHs()), 8 bits
    charge: int = 0  # formal charge from -128 to 127, 8 bits
    degree: int = 0  # number of bonds of the atom in the molecule (GetDegree()), 4 bits
    hybridization: int = 0  # position in `HYBRIDIZATIONS`, 4 bits
    ring_size: int = 0  # number of atoms in the smallest ring that contains the atom, 0 for none, 4 bits
    radicals: int = 0  # number of radical electrons (GetNumRadicalElectrons()), 3 bits
    aromatic: int = 0  # 1 for an aromatic atom (GetIsAromatic()), 1 bit
    chiral_tag: int = 0  # position in `CHIRAL_TAGS`, 4 bits
    cip: int = 0  # position in `CIP_LABELS`, 4 bits

    @property
    def hybridization_name(self) -> str:
        """RDKit's name of the hybridisation, such as "SP2"."""
        return HYBRIDIZATIONS[self.hybridization]

    @property
    def in_ring(self) -> bool:
        return self.ring_size > 0

    def packed(self) -> int:
        """Return the fields as one number of 64 bits, the first field in the lowest ones."""
        return _pack(self._replace(charge=self.charge % 256), _ATOM_BITS)

    @classmethod
    def unpacked(cls, number: int) -> Self:
        """Return the fields in a number that :meth:`packed` gave."""
        fields = cls(*_unpack(number, _ATOM_BITS))
        return fields._replace(charge=(fields.charge + 128) % 256 - 128)


class BondFields(NamedTuple):
    """The fields of an `rdkit.Chem.Bond`, 8 bits each. When packed, a number above 255 becomes 255."""

    type: int  # position in `BOND_TYPES`
    conjugated: int = 0  # 1 for a conjugated bond (GetIsConjugated())
    ring_size: int = 0  # number of atoms in the smallest ring that contains the bond, 0 for none
    stereo: int = 0  # position in `BOND_STEREOS`

    @property
    def type_name(self) -> str:
        """RDKit's name of the bond type, such as "DOUBLE"."""
        return BOND_TYPES[self.type]

    @property
    def stereo_name(self) -> str:
        """RDKit's name of the bond's stereo, such as "STEREOE"."""
        return BOND_STEREOS[self.stereo]

    @property
    def in_ring(self) -> bool:
        return self.ring_size > 0

    def packed(self) -> int:
        """Return the fields as one number of 32 bits, the first field in the lowest ones."""
        return _pack(self, _BOND_BITS)

    @classmethod
    def unpacked(cls, number: int) -> Self:
        """Return the fields in a number that :meth:`packed` gave."""
        return cls(*_unpack(number, _BOND_BITS))


_ATOM_BITS = (8, 8, 8, 8, 8, 4, 4, 4, 3, 1, 4, 4)
_BOND_BITS = (8, 8, 8, 8)
ATOM_STEREO, BOND_STEREO = 7, 3
"""The byte of a packed atom that holds `chiral_tag` and `cip` only, and the byte of a packed bond that holds `stereo` only."""


def _pack(fields: tuple[int, ...], widths: tuple[int, ...]) -> int:
    number = place = 0
    for value, width in zip(fields, widths, strict=True):
        number |= min(value, (1 << width) - 1) << place
        place += width
    return number


def _unpack(number: int, widths: tuple[int, ...]) -> list[int]:
    values = []
    for width in widths:
        values.append(number & ((1 << width) - 1))
        number >>= width
    return values
