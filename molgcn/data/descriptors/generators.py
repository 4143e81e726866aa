"""Descriptors that RDKit computes: the table of `dataset.descriptor_generators`. Those of a reaction are products minus reactants.

Descriptors are computed from a molecule's SMILES and do not depend on the features of its graph. Importing this module does not import
RDKit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from molgcn.data.descriptors.attach import unusable
from molgcn.data.fingerprints import BITS, morgan_generator
from molgcn.data.molecules import InvalidMoleculeError, whole_molecule
from molgcn.data.reaction_smiles import sides_of

MACCS_KEYS = 166
COUNT_BITS = 1024  # of the fingerprints of counts
ERG_BITS = 315  # 21 pairs of pharmacophores at 15 distances
_PHYSCHEM = {"SlogP_VSA": 12, "SMR_VSA": 10, "PEOE_VSA": 14, "MQNs": 42}  # columns of RDKit's functions of these names and "_"
_LEFT_OUT = ("Ipc",)  # exceeds float32 for large molecules; AvgIpc, its value per atom, stays


@dataclass(frozen=True)
class Generator:
    """A set of descriptors."""

    names: Callable[[], tuple[str, ...]]  # function that returns the K names
    # function that returns the K numbers, of any type, of an `rdkit.Chem.Mol`, with NaN for a number that RDKit cannot compute
    compute: Callable[[Any], np.ndarray]


@cache
def _rdkit2d() -> dict[str, Callable[[Any], float]]:
    from rdkit.Chem import Descriptors

    return {name: function for name, function in Descriptors.descList if name not in _LEFT_OUT}


def _compute_rdkit2d(mol: Any) -> np.ndarray:
    def value(function: Callable[[Any], float]) -> float:
        try:
            return function(mol)
        except (ArithmeticError, ValueError, RuntimeError):
            return np.nan

    return np.array([value(function) for function in _rdkit2d().values()], np.float64)


def _compute_avalon_counts(mol: Any) -> np.ndarray:
    from rdkit.Avalon.pyAvalonTools import GetAvalonCountFP

    counts = np.zeros(COUNT_BITS)
    for bit, count in GetAvalonCountFP(mol, nBits=COUNT_BITS).GetNonzeroElements().items():
        counts[bit] = count
    return counts


def _compute_erg(mol: Any) -> np.ndarray:
    from rdkit.Chem import Mol
    from rdkit.Chem.rdReducedGraphs import GetErGFingerprint

    # RDKit reads a distance matrix that the molecule has cached as one of the reduced graph, which has other atoms. This copy has none.
    return GetErGFingerprint(Mol(mol, True))


def _compute_maccs(mol: Any) -> np.ndarray:
    from rdkit.Chem import rdMolDescriptors

    return np.array(rdMolDescriptors.GetMACCSKeysFingerprint(mol), np.float64)[1:]  # bit 0 is not a key


@cache
def _properties() -> Any:
    from rdkit.Chem.rdMolDescriptors import Properties

    return Properties()


def _physchem_names() -> tuple[str, ...]:
    numbered = (f"{part}{number}" for part, count in _PHYSCHEM.items() for number in range(1, count + 1))
    return tuple(f"physchem_{name}" for name in (*_properties().GetPropertyNames(), *numbered))


def _compute_physchem(mol: Any) -> np.ndarray:
    from rdkit.Chem import rdMolDescriptors

    parts = [getattr(rdMolDescriptors, f"{part}_")(mol) for part in _PHYSCHEM]
    return np.array([*_properties().ComputeProperties(mol), *(value for part in parts for value in part)], np.float64)


def _numbered(prefix: str, numbers: range) -> Callable[[], tuple[str, ...]]:
    return lambda: tuple(f"{prefix}_{number}" for number in numbers)


GENERATORS = {
    "physchem": Generator(_physchem_names, _compute_physchem),
    "rdkit2d": Generator(lambda: tuple(_rdkit2d()), _compute_rdkit2d),
    "morgan": Generator(_numbered("morgan", range(BITS)), lambda mol: morgan_generator().GetFingerprintAsNumPy(mol)),
    "maccs": Generator(_numbered("maccs", range(1, MACCS_KEYS + 1)), _compute_maccs),
    "morgan_counts": Generator(
        _numbered("morgan_counts", range(COUNT_BITS)), lambda mol: morgan_generator(COUNT_BITS).GetCountFingerprintAsNumPy(mol)
    ),
    "avalon_counts": Generator(_numbered("avalon_counts", range(COUNT_BITS)), _compute_avalon_counts),
    "erg": Generator(_numbered("erg", range(ERG_BITS)), _compute_erg),
}
FOR_TREES = ("rdkit2d", "morgan_counts", "avalon_counts", "erg")  # as MapLight (Notwell and Wood, arXiv:2310.00174)


def generated_names(generators: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all descriptors that the given generators compute, in order."""
    return tuple(name for generator in generators for name in GENERATORS[generator].names())


def calculator(generators: Sequence[str], isotopes: bool = False, missing: bool = False) -> Callable[[str], np.ndarray]:
    """Return a function that computes the descriptors of a SMILES, float64 [K].

    Those of a reaction are the descriptors of its products minus those of its reactants. Agents, which stay the same, have no part in them.
    The function raises InvalidMoleculeError for a descriptor that is not a finite number, such as the partial charges of an unusual atom.
    With `isotopes` these count, see :func:`molgcn.data.molecules.whole_molecule`. With `missing` such a descriptor is NaN, and no error.
    """
    names = generated_names(generators)

    def of_molecule(smiles: str) -> np.ndarray:
        mol = whole_molecule(smiles, isotopes)
        return np.concatenate([GENERATORS[generator].compute(mol) for generator in generators], dtype=np.float64)

    def calculate(smiles: str) -> np.ndarray:
        sides = sides_of(smiles)
        values = of_molecule(smiles) if sides is None else of_molecule(sides.products) - of_molecule(sides.reactants)
        if missing:
            return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)
        for reason in unusable(values[None], names).values():
            raise InvalidMoleculeError(reason)
        return values

    return calculate
