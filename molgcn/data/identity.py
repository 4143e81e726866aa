"""Finds molecules that are equal to a network: two hashes of each packed graph, made exact where hashes are equal.

A network sees the feature rows of atoms and bonds and which atoms are bound, in any order. Molecules that agree in these are equal to it,
whatever their SMILES. They may differ in the order of atoms, in hydrogens written out or not, and in stereochemistry, charges or bond
orders that the features do not describe. The hashes therefore depend on the packed graph, and work for molecules without SMILES.

`exact_hashes` find molecules that are equal to a network, which `dataset.duplicates` merges. Of the bonds they take the features of those
that each atom has, but not which atom is at the other end: where single and double bonds take turns around a ring, a molecule has two
Kekulé forms, and RDKit chooses one.

`hashes` find copies, which a split keeps in one part. They leave out the features of bonds, so that E and Z are copies, and RDKit's chiral
tags, which depend on the order of the atoms, so that a molecule is a copy of itself in any order. Features of atoms that come from a file,
such as those of a conformer, do not count there either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.merge_leaves import refuse_merged
from molgcn.data.packed import PackedMolecules
from molgcn.data.segments import pointers
from molgcn.data.workers import map_chunks

ROUNDS = 16  # of colour refinement, after which an atom's colour depends on all atoms within as many bonds
_ATOMS_AT_ONCE = 1 << 15  # so that the colours stay in a core's cache

LabelledGraph = tuple[bytes, bytes]


def with_hashes(molecules: PackedMolecules, num_workers: int | None = None) -> PackedMolecules:
    """Return the set with `hashes`, equal for copies of a molecule, and `exact_hashes`, equal for molecules that are equal to a network.

    A hash is that of the graph after colour refinement (Weisfeiler and Lehman, 1968) and does not depend on the other molecules, with one
    exception. Different graphs that refinement cannot tell apart (decalin and bicyclopentyl, or 219 pairs of QM9) are told apart by
    canonical SMILES, on which their hashes then depend too.
    """
    refuse_merged(molecules)
    return replace(molecules, hashes=_hashes(molecules, False, num_workers), exact_hashes=_hashes(molecules, True, num_workers))


def first_copies(hashes: np.ndarray) -> np.ndarray:
    """Return the position of the first molecule that has the same hash as each molecule, int64 [M]."""
    _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
    return first[place]


def _hashes(molecules: PackedMolecules, exact: bool, num_workers: int | None) -> np.ndarray:
    """Return the hash of each molecule, uint64 [M], which depends on bond features and chiral tags if `exact` is true."""
    colors = _refined_colors(molecules, exact)
    hashes = _mix(_sums(_mix(colors), molecules.node_ptr))
    _, place, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    meeting = np.flatnonzero(counts[place] > 1)
    digests = _canonical_digests([_labelled_graph(molecules, colors, index) for index in meeting.tolist()], num_workers)
    forms = np.unique(np.stack([hashes[meeting], digests], axis=1), axis=0)
    met, different = np.unique(forms[:, 0], return_counts=True)
    ambiguous = np.isin(hashes[meeting], met[different > 1])
    hashes[meeting[ambiguous]] = _mix(hashes[meeting] + digests)[ambiguous]
    return hashes


def _refined_colors(molecules: PackedMolecules, exact: bool) -> np.ndarray:
    """Return the refined colour of each atom, uint64 [N], equal for atoms whose surroundings agree in features.

    The features of bonds and RDKit's chiral tags count if `exact` is true.
    """
    colors = _row_colors(molecules.x, molecules.table, () if exact else _left_out(molecules))
    if molecules.component is not None:
        colors = _mix(colors + _mix(molecules.component.astype(np.uint64)))
    starts = np.searchsorted(molecules.node_ptr, np.arange(0, molecules.num_nodes, _ATOMS_AT_ONCE))
    bounds = np.unique(np.append(starts, len(molecules)))
    for first, last in pairwise(bounds):
        node_ptr = molecules.node_ptr[first : last + 1]
        nodes, edges = slice(node_ptr[0], node_ptr[-1]), slice(molecules.edge_ptr[first], molecules.edge_ptr[last])
        degree = molecules.degree[nodes]
        base = np.repeat(node_ptr[:-1] - node_ptr[0], np.diff(node_ptr))
        col, row_ptr = molecules.neighbors[edges] + np.repeat(base, degree), pointers(degree)
        own = colors[nodes]
        if exact and molecules.edge_attr is not None:
            own = _mix(own + _sums(_row_colors(molecules.edge_attr[edges], molecules.edge_table), row_ptr))
        for _ in range(ROUNDS):
            own = _mix(3 * own + _sums(_mix(own)[col], row_ptr))
        colors[nodes] = own
    return colors


def _left_out(molecules: PackedMolecules) -> Sequence[int]:
    """Return the positions of the atom features that are RDKit's chiral tags, and of those that come from a file."""
    features, own = molecules.features, len(molecules.atom_feature_names)
    tags = get_featurizer(features).tag_columns if features is not None and features.partition(":")[0] in FEATURIZERS else []
    return [*tags, *range(molecules.num_features - own, molecules.num_features)]


def _row_colors(values: np.ndarray, table: np.ndarray | None, left_out: Sequence[int] = ()) -> np.ndarray:
    """Return a hash of each feature row without some columns, uint64, which does not depend on the row's position in the table."""
    rows = np.delete(values if table is None else table, left_out, axis=1)
    words = (np.ascontiguousarray(rows, np.float32) + np.float32(0)).view(np.uint32).astype(np.uint64)  # -0.0 becomes 0.0
    colors = _mix(_mix(words + _mix(np.arange(words.shape[1], dtype=np.uint64))).sum(axis=1, dtype=np.uint64))
    return colors if table is None else colors[values]


def _mix(values: np.ndarray) -> np.ndarray:
    """Mix the bits of uint64 values by a one-to-one function, splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _sums(values: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """Return the sums of consecutive segments of uint64 values modulo 2^64."""
    total = pointers(values, np.uint64)
    return total[ptr[1:]] - total[ptr[:-1]]


def _labelled_graph(molecules: PackedMolecules, colors: np.ndarray, index: int) -> LabelledGraph:
    """Return the ranks of the colours of a molecule's atoms, uint16 [n], and its bonds, uint16 [m, 2], both as bytes."""
    nodes, edges = (slice(int(ptr[index]), int(ptr[index + 1])) for ptr in (molecules.node_ptr, molecules.edge_ptr))
    labels = np.unique(colors[nodes], return_inverse=True)[1]
    targets = np.repeat(np.arange(len(labels)), molecules.degree[nodes])
    bonds = np.stack([molecules.neighbors[edges], targets], axis=1)
    return labels.astype(np.uint16).tobytes(), bonds[bonds[:, 0] < bonds[:, 1]].astype(np.uint16).tobytes()


def _canonical_digests(graphs: Sequence[LabelledGraph], num_workers: int | None) -> np.ndarray:
    """Return a digest of each graph, uint64, equal for isomorphic graphs. Graphs that agree byte for byte are computed once."""
    distinct = list(dict.fromkeys(graphs))
    chunks = map_chunks(_digests, distinct, num_workers=num_workers, description="repeated molecules")
    digest_of = dict(zip(distinct, (digest for chunk in chunks for digest in chunk), strict=True))
    return np.array([digest_of[graph] for graph in graphs], np.uint64)


def _digests(graphs: Sequence[LabelledGraph]) -> list[int]:
    return [int.from_bytes(hashlib.blake2b(_canonical_smiles(*graph).encode(), digest_size=8).digest(), "little") for graph in graphs]


def _canonical_smiles(labels: bytes, bonds: bytes) -> str:
    """Return the canonical SMILES of a graph of single bonds between dummy atoms, whose isotopes are the labels."""
    from rdkit import Chem

    mol = Chem.RWMol()
    for label in np.frombuffer(labels, np.uint16).tolist():
        atom = Chem.Atom(0)
        atom.SetIsotope(label + 1)
        mol.AddAtom(atom)
    for begin, end in {*map(tuple, np.frombuffer(bonds, np.uint16).reshape(-1, 2).tolist())}:  # colours already count duplicate bonds
        mol.AddBond(begin, end, Chem.BondType.SINGLE)
    return str(Chem.MolToSmiles(mol))
