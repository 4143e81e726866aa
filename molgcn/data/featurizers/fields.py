"""What featurisers read from RDKit's atoms and bonds: small numbers, so that an atom is one of 64 bits and a bond one of 32.

Rows repeat (QM9 has a few dozen), and equal numbers have equal rows: each distinct one is encoded once.
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
CIP_LABELS = ("", "R", "S", "r", "s")  # the small ones are of centres that a reflection leaves as they are


class AtomFields(NamedTuple):
    """What is read from an `rdkit.Chem.Atom`; a number that is more than its bits hold counts as the most that they do.

    Attributes:
        number: atomic number, 0 for a dummy; 8 bits.
        hidden_hs: hydrogens that are no atoms of the molecule (GetTotalNumHs()); 8 bits.
        num_hs: hydrogens, with those that are atoms of it (GetTotalNumHs(True)); 8 bits.
        explicit_hs: the part of `hidden_hs` that was stated (GetNumExplicitHs()); 8 bits.
        charge: formal charge, -128 to 127; 8 bits.
        degree: bonds that the molecule has at it; 4 bits.
        hybridization: place in :data:`HYBRIDIZATIONS`; 4 bits.
        ring_size: atoms of the smallest ring that it is in, 0 for none; 4 bits.
        radicals: unpaired electrons (GetNumRadicalElectrons()); 3 bits.
        aromatic: GetIsAromatic(); 1 bit.
        chiral_tag: place in :data:`CHIRAL_TAGS`; 4 bits.
        cip: place in :data:`CIP_LABELS`; 4 bits.
    """

    number: int
    hidden_hs: int = 0
    num_hs: int = 0
    explicit_hs: int = 0
    charge: int = 0
    degree: int = 0
    hybridization: int = 0
    ring_size: int = 0
    radicals: int = 0
    aromatic: int = 0
    chiral_tag: int = 0
    cip: int = 0

    @property
    def hybridization_name(self) -> str:
        """RDKit's name, as "SP2"."""
        return HYBRIDIZATIONS[self.hybridization]

    @property
    def in_ring(self) -> bool:
        """IsInRing()."""
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
    """What is read from an `rdkit.Chem.Bond`; 8 bits each, and a number that is more counts as 255.

    Attributes:
        type: place in :data:`BOND_TYPES`.
        conjugated: GetIsConjugated().
        ring_size: atoms of the smallest ring that it is in, 0 for none.
        stereo: place in :data:`BOND_STEREOS`.
    """

    type: int
    conjugated: int = 0
    ring_size: int = 0
    stereo: int = 0

    @property
    def type_name(self) -> str:
        """RDKit's name, as "DOUBLE"."""
        return BOND_TYPES[self.type]

    @property
    def stereo_name(self) -> str:
        """RDKit's name, as "STEREOE"."""
        return BOND_STEREOS[self.stereo]

    @property
    def in_ring(self) -> bool:
        """IsInRing()."""
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
"""The byte of a packed atom that holds `chiral_tag` and `cip` and no other field, and that of a packed bond that holds `stereo`."""


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
