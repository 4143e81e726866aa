"""Compares molecules with those that a model was trained on: elements, numbers of heavy atoms, dummy atoms, several fragments.

A network predicts a number for any molecule, and the number does not show that the molecule is unlike all that it was trained on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from molgcn.data.components import num_components
from molgcn.data.featurizers import get_featurizer
from molgcn.data.featurizers.elements import element_symbol
from molgcn.data.packed import PackedMolecules
from molgcn.data.segments import pointers
from molgcn.data.strings import PackedStrings

log = logging.getLogger(__name__)

DUMMY = 0
_FEW = 0.01  # share of the training molecules below which they say little about others of the kind


@dataclass(frozen=True)
class Contents:
    """Counts of what molecules contain."""

    # number of molecules with exactly this set of elements. A set holds atomic numbers, 0 for a dummy atom
    elements: Counter[frozenset[int]] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)  # number of molecules with this number of heavy atoms
    mixtures: int = 0  # number of molecules of several fragments

    def __add__(self, other: Contents) -> Contents:
        return Contents(self.elements + other.elements, self.sizes + other.sizes, self.mixtures + other.mixtures)


def contents_of(molecules: PackedMolecules, smiles: Sequence[str] | None = None) -> Contents:
    """Count the elements, sizes and mixtures of featurised molecules.

    The counts come from the feature rows, so that a packed set needs no RDKit for them. With SMILES, the set's own or
    given, mixtures are found faster.
    """
    numbers, codes = _atomic_numbers(molecules)
    sizes = np.bincount(heavy_atoms(molecules))
    return Contents(
        _element_sets(numbers, codes, molecules.node_ptr[:-1]),
        Counter({int(size): int(sizes[size]) for size in np.flatnonzero(sizes)}),
        _count_mixtures(molecules, smiles or molecules.smiles),
    )


def heavy_atoms(molecules: PackedMolecules) -> np.ndarray:
    """Return the number of heavy atoms of each featurised molecule, int64 [M]."""
    numbers, codes = _atomic_numbers(molecules)
    return np.add.reduceat((numbers > 1)[codes], molecules.node_ptr[:-1], dtype=np.int64)


def _atomic_numbers(molecules: PackedMolecules) -> tuple[np.ndarray, np.ndarray]:
    """Return the atomic number of each distinct feature row, and the row of each atom."""
    assert molecules.features is not None
    element = get_featurizer(molecules.features).element
    codes, table = molecules.computed_features
    rows, codes = (codes, np.arange(len(codes))) if table is None else (table, codes)
    return np.array([element(row) for row in rows]), codes


def _element_sets(numbers: np.ndarray, codes: np.ndarray, starts: np.ndarray) -> Counter[frozenset[int]]:
    """Count molecules by their sets of elements, each of which is built as a bit mask in words of 64 elements."""
    words = []
    for first in range(0, int(numbers.max()) + 1, 64):
        bits = np.where((numbers >= first) & (numbers < first + 64), np.uint64(1) << (numbers % 64).astype(np.uint64), np.uint64(0))
        words.append(np.bitwise_or.reduceat(bits[codes], starts).tolist())
    counts: Counter[frozenset[int]] = Counter()
    for masks, count in Counter(zip(*words, strict=True)).items():
        mask = sum(word << 64 * place for place, word in enumerate(masks))
        counts[frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)] += count
    return counts


def _count_mixtures(molecules: PackedMolecules, smiles: Sequence[str] | None) -> int:
    if smiles is not None:  # a SMILES without a dot is one fragment
        dotted = _dotted(smiles)
        if len(dotted) == 0:
            return 0
        molecules = molecules[dotted]
    return int((num_fragments(molecules) > num_components(molecules)).sum())


def _dotted(smiles: Sequence[str]) -> np.ndarray:
    if isinstance(smiles, PackedStrings):
        return np.unique(np.searchsorted(smiles.ptr, np.flatnonzero(smiles.data == ord(".")), side="right") - 1)
    return np.array([place for place, text in enumerate(smiles) if "." in text], np.int64)


def num_fragments(molecules: PackedMolecules) -> np.ndarray:
    """Return the number of connected components of each molecule, int64 [M]."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    sources = molecules.neighbors + np.repeat(molecules.node_ptr[:-1], np.diff(molecules.edge_ptr))
    bonds = csr_array((np.ones(len(sources), bool), sources, pointers(molecules.degree)), shape=(molecules.num_nodes,) * 2)
    _, first_atoms = np.unique(connected_components(bonds, directed=False)[1], return_index=True)
    return np.bincount(np.searchsorted(molecules.node_ptr, first_atoms, side="right") - 1, minlength=len(molecules))


def domain_of(contents: Contents) -> dict[str, Any]:
    """Return what a checkpoint stores about the molecules that it was trained on, in plain values."""
    return {
        "elements": sorted(frozenset[int]().union(*contents.elements)),
        "heavy_atoms": [min(contents.sizes), max(contents.sizes)],
        "mixtures": contents.mixtures > 0,
        "mixture_share": contents.mixtures / contents.elements.total(),
    }


def is_domain(value: Any) -> bool:
    """Return whether a value from a file has the form that :func:`domain_of` returns."""
    return (
        isinstance(value, Mapping)
        and all(isinstance(value.get(key), list) and all(isinstance(one, int) for one in value[key]) for key in ("elements", "heavy_atoms"))
        and len(value["heavy_atoms"]) == 2
        and isinstance(value.get("mixtures"), bool)
        and isinstance(value.get("mixture_share", 0.0), float)  # older checkpoints have none
    )


def common_domain(domains: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return what all models of an ensemble were trained on, or None where none of them says it.

    Each is a :func:`domain_of`, None for a model that does not say it.
    """
    known = [domain for domain in domains if domain is not None]
    if not known:
        return None
    return {
        "elements": sorted(frozenset.intersection(*(frozenset(domain["elements"]) for domain in known))),
        "heavy_atoms": [max(domain["heavy_atoms"][0] for domain in known), min(domain["heavy_atoms"][1] for domain in known)],
        "mixtures": all(domain["mixtures"] for domain in known),
        "mixture_share": min(_mixture_share(domain) for domain in known),
    }


def _mixture_share(domain: Mapping[str, Any]) -> float:
    """Return the share of the training molecules that have several fragments; 1 where an older checkpoint says only that there are some."""
    return float(domain.get("mixture_share", domain["mixtures"]))


def describe_unlike(contents: Contents, domain: Mapping[str, Any] | None = None) -> str:
    """Return a text that says how many molecules are unlike the training molecules, "" if none is.

    Without the `domain` of the training molecules, as in older checkpoints, elements and sizes are left out. Molecules of several fragments
    count where less than 1 % of the training molecules are such, and less than half as many as here.
    """
    found = []
    seen = frozenset(domain["elements"]) if domain else frozenset[int]()
    if domain:
        by_element: Counter[int] = Counter()
        for elements, count in contents.elements.items():
            by_element.update(dict.fromkeys(elements - seen - {DUMMY}, count))
        total = sum(count for elements, count in contents.elements.items() if elements - seen - {DUMMY})
        if total:
            listed = ", ".join(f"{element_symbol(number)} {count:,}" for number, count in by_element.most_common(8))
            more = f" and {len(by_element) - 8} more elements" if len(by_element) > 8 else ""
            found.append(f"{total:,} with elements that no training molecule has ({listed}{more})")
    dummies = sum(count for elements, count in contents.elements.items() if DUMMY in elements - seen)
    if dummies:
        found.append(f"{dummies:,} with dummy atoms (*)")
    known = _mixture_share(domain) if domain else 0.0
    if contents.mixtures and known < _FEW and 2 * known < contents.mixtures / contents.elements.total():
        few = f", as {known:.1%} of the training molecules" if known else ""
        found.append(f"{contents.mixtures:,} of several fragments (salts, mixtures{few})")
    if domain:
        least, most = domain["heavy_atoms"]
        outside = sum(count for size, count in contents.sizes.items() if not least <= size <= most)
        if outside:
            found.append(f"{outside:,} outside the training molecules' {least} to {most} heavy atoms")
    return ", ".join(found)


def warn_of_extrapolation(title: str, contents: Contents, domain: Mapping[str, Any] | None) -> None:
    """Log a warning that counts the molecules of `title` that are unlike the training molecules, if there are any."""
    if unlike := describe_unlike(contents, domain):
        log.warning("%s has molecules unlike the training molecules: %s; their predictions are extrapolations", title, unlike)
