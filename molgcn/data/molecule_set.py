"""A whole data set as flat arrays, without a Python object for each molecule: about 100 bytes for a molecule of QM9."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from molgcn.data import packing
from molgcn.data.digits import stored
from molgcn.data.packed_arrays import ARRAYS, MOLECULES_AT_ONCE, Gathered
from molgcn.data.rows import SkippedRow
from molgcn.data.segments import pointers, segment_index
from molgcn.data.strings import PackedStrings
from molgcn.data.tiles import tile_size
from molgcn.errors import UserError


@dataclass(eq=False)
class MoleculeSet:
    """M molecules with N atoms and E directed bonds. Both directions of a bond are present, self-loops of a convolution are not.

    Attributes:
        node_ptr: int64 [M + 1], first atom of each molecule.
        edge_ptr: int64 [M + 1], first bond of each molecule.
        degree: uint8 or uint16 [N], number of bonds that point at each atom.
        neighbors: uint8 or uint16 [E], molecule-local source of each bond, sorted by molecule, target, source.
        x: atom features, as codes uint8 or uint16 [N] into `table`, or float32 [N, F] when `table` is None.
        table: float32 [K, F], the distinct rows of atom features, or None.
        edge_attr: bond features in the order of `neighbors`, as codes uint8 or uint16 [E] into `edge_table`, or float32 [E, D], or None.
        edge_table: float32 [K, D], the distinct rows of bond features, or None.
        rwse: float32 [N, k], random-walk encoding of the atoms (:func:`molgcn.data.layout.with_encodings`), or None.
        bond_rw: float32 [E, k], random-walk encoding of the bonds in the order of `neighbors`, or None.
        descriptors: float32 [M, K], numbers of each molecule that a model takes beside its graph, or None.
        descriptor_names: names of the K descriptors.
        atom_feature_names: names of the last features of atoms, which come from a file (:mod:`molgcn.data.own_features`).
        bond_feature_names: names of the last features of bonds, which come from a file.
        bond_number: int32 [E], RDKit's number of each bond in its molecule, the same for both directions, in the order of `neighbors`, or
            None.
        tree_descriptors: float32 [M, F], numbers that boosted trees take beside the descriptors, NaN where RDKit has none, or None.
        targets: float32 or float64 [M, T], NaN where missing. float64 where float32 has too few digits (:mod:`molgcn.data.digits`).
            The columns of targets of atoms and of bonds, the last ones in this order, are NaN (:mod:`molgcn.data.levels`).
        atom_targets: float32 [N, A], the values of the A targets of atoms, NaN where missing, or None.
        bond_targets: float32 [E, C], the values of the C targets of bonds in the order of `neighbors`, NaN where missing, or None. Each
            value stands at the direction of its bond whose source has the lower number, so that it counts once.
        rows: int64 [M], 0-based data row of each molecule in its source.
        smiles: SMILES of the M molecules, or None.
        target_names: names of the T targets.
        target_units: units of the T targets, "" for none.
        features: name of the featuriser, or None.
        skipped: rows of the source that are not in the set.
        bounds: float32 [M, T], -1 where the true value is below the target, 1 where it is above, 0 where it is the target, or None.
        weights: float32 [M, 1], weight of each molecule in the loss, or None.
        hashes: uint64 [M], equal for copies of a molecule, which a split keeps in one part (:mod:`molgcn.data.identity`), or None.
        exact_hashes: uint64 [M], equal for molecules that are equal to a network, which `dataset.duplicates` merges, or None.
        component: uint8 [N], the component of its row to which each atom belongs (:mod:`molgcn.data.components`), or None.
        leaves_merged: whether equal leaves are one row (:mod:`molgcn.data.merge_leaves`). N and E then count what is left.
        files: name and first row of each file, for a set that was read from several files. Else empty.
        num_rows: number of rows of the whole source, or None where it is not known.
    """

    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    degree: np.ndarray
    neighbors: np.ndarray
    x: np.ndarray
    table: np.ndarray | None
    targets: np.ndarray
    rows: np.ndarray
    smiles: PackedStrings | None = None
    target_names: tuple[str, ...] = ()
    target_units: tuple[str, ...] = ()
    features: str | None = None
    skipped: list[SkippedRow] = field(default_factory=list)
    hashes: np.ndarray | None = None
    exact_hashes: np.ndarray | None = None
    leaves_merged: bool = False
    edge_attr: np.ndarray | None = None
    edge_table: np.ndarray | None = None
    rwse: np.ndarray | None = None
    bond_rw: np.ndarray | None = None
    component: np.ndarray | None = None
    descriptors: np.ndarray | None = None
    descriptor_names: tuple[str, ...] = ()
    atom_feature_names: tuple[str, ...] = ()
    bond_feature_names: tuple[str, ...] = ()
    bond_number: np.ndarray | None = None
    atom_targets: np.ndarray | None = None
    bond_targets: np.ndarray | None = None
    tree_descriptors: np.ndarray | None = None
    bounds: np.ndarray | None = None
    weights: np.ndarray | None = None
    files: tuple[tuple[str, int], ...] = ()
    num_rows: int | None = None

    @classmethod
    def from_arrays(
        cls,
        num_nodes: np.ndarray,
        num_edges: np.ndarray,
        edge_index: np.ndarray,
        *,
        x: np.ndarray | None = None,
        codes: np.ndarray | None = None,
        table: np.ndarray | None = None,
        edge_attr: np.ndarray | None = None,
        edge_codes: np.ndarray | None = None,
        edge_table: np.ndarray | None = None,
        targets: np.ndarray | None = None,
        rows: np.ndarray | None = None,
        smiles: Iterable[str] | None = None,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        features: str | None = None,
        skipped: Sequence[SkippedRow] = (),
    ) -> Self:
        """Pack molecules given as flat arrays, and check them.

        Atom features are `x`, or `codes` and `table`. Bond features are `edge_attr`, or `edge_codes` and `edge_table`, or none.

        Args:
            num_nodes: int [M], number of atoms of each molecule.
            num_edges: int [M], number of directed bonds of each molecule.
            edge_index: int [2, E], molecule-local source and target of every bond, molecule after molecule.
            x: float [N, F], atom features.
            codes: int [N], row of `table` for each atom.
            table: float [K, F], distinct rows of atom features.
            edge_attr: float [E, D], bond features in the order of `edge_index`.
            edge_codes: int [E], row of `edge_table` for each directed bond.
            edge_table: float [K, D], distinct rows of bond features.
            targets: float [M, T] or [M], NaN where missing.
            rows: int [M], row of each molecule in its source. Default: 0, 1, ...
            smiles: SMILES of the M molecules.
            target_names: names of the T targets. Default: y0, y1, ...
            target_units: units of the T targets. Default: "".
            features: name of the featuriser.
            skipped: rows of the source that were left out.

        Raises:
            UserError: when a molecule is not valid (:func:`molgcn.data.packing.pack_graphs`), a number not finite, or shapes disagree.
        """
        if edge_attr is not None or edge_codes is not None or edge_table is not None:
            edge_attr, edge_table = packing.pack_features(edge_attr, edge_codes, edge_table, "bond")
        graphs: dict[str, Any] = packing.pack_graphs(num_nodes, num_edges, edge_index, edge_attr)
        features_of_atoms, table = packing.pack_features(x, codes, table)
        count, total = len(graphs["node_ptr"]) - 1, int(graphs["node_ptr"][-1])
        if len(features_of_atoms) != total:
            raise UserError(f"There are features for {len(features_of_atoms)} atoms, but the molecules have {total}; expected a row each.")
        no_targets = np.zeros((count, 0), np.float32)
        graphs |= {"x": features_of_atoms, "table": table, "edge_table": edge_table}
        bare = cls(**graphs, targets=no_targets, rows=np.arange(count), features=features)
        return bare.with_data(targets, rows, smiles, target_names, target_units, skipped)

    def with_data(
        self,
        targets: np.ndarray | None = None,
        rows: np.ndarray | None = None,
        smiles: Iterable[str] | None = None,
        target_names: Sequence[str] = (),
        target_units: Sequence[str] = (),
        skipped: Sequence[SkippedRow] = (),
    ) -> Self:
        """Return the same molecules with these data in place of their own. For arguments and errors see :meth:`from_arrays`."""
        targets = stored(packing.check_targets(targets, len(self)))
        names = tuple(target_names) or tuple(f"y{i}" for i in range(targets.shape[1]))
        units = tuple(target_units) or ("",) * len(names)
        if not len(names) == len(units) == targets.shape[1]:
            raise UserError(f"There are {targets.shape[1]} targets, {len(names)} names and {len(units)} units; expected as many of each.")
        packed_smiles = None if smiles is None else PackedStrings.from_strings(smiles)
        if packed_smiles is not None and len(packed_smiles) != len(self):
            raise UserError(f"There are {len(packed_smiles)} SMILES for {len(self)} molecules; expected one each.")
        return replace(
            self,
            targets=targets,
            rows=np.arange(len(self)) if rows is None else np.asarray(rows, np.int64),
            smiles=packed_smiles,
            target_names=names,
            target_units=units,
            skipped=list(skipped),
        )

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    def __repr__(self) -> str:
        sizes = f"{len(self):,} molecules, {self.num_nodes:,} atoms, {self.num_edges:,} bonds, num_features={self.num_features}"
        return f"{type(self).__name__}({sizes}, targets={list(self.target_names)})"

    @property
    def num_nodes(self) -> int:
        """Number of atoms, N."""
        return int(self.node_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Number of directed bonds, E."""
        return int(self.edge_ptr[-1])

    @property
    def num_features(self) -> int:
        """Number of atom features, F."""
        return (self.x if self.table is None else self.table).shape[1]

    @property
    def num_edge_features(self) -> int:
        """Number of bond features, D, 0 for a set without any."""
        rows = self.edge_attr if self.edge_table is None else self.edge_table
        return 0 if rows is None else rows.shape[1]

    @cached_property
    def computed_features(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The atom features without own ones, as codes [N] and their table, or as rows [N, F] and None."""
        return _computed(self.x, self.table, len(self.atom_feature_names), "atom")

    @cached_property
    def computed_edge_features(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The bond features without own ones, as codes [E] and their table, or as rows [E, D] and None. The set must have bond features."""
        assert self.edge_attr is not None
        return _computed(self.edge_attr, self.edge_table, len(self.bond_feature_names), "bond")

    @cached_property
    def num_nodes_per_graph(self) -> np.ndarray:
        """Number of atoms of each molecule, int64 [M]."""
        return np.diff(self.node_ptr)

    @property
    def num_labels(self) -> list[int]:
        """Number of molecules with a known value, for each target."""
        return [int(count) for count in (~np.isnan(self.targets)).sum(axis=0)]

    @property
    def target_words(self) -> np.ndarray:
        """The labels as 32-bit words, which kernels copy: int32 [M, L], or [M, 2 L] for float64 labels."""
        return self.labels.view(np.int32)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels in the targets' dtype, [M, T], or [M, 2 T + 1] with bounds or weights: see :mod:`molgcn.data.label_columns`."""
        if self.bounds is None and self.weights is None:
            return self.targets
        bounds = np.zeros_like(self.targets) if self.bounds is None else self.bounds
        weights = np.ones_like(self.targets[:, :1]) if self.weights is None else self.weights
        return np.ascontiguousarray(np.concatenate([self.targets, bounds, weights], axis=1, dtype=self.targets.dtype))

    @property
    def tile_nodes(self) -> int:
        """Number of atoms that a tile has room for, chosen by the set's largest molecule: 64 or 128."""
        return tile_size(self.largest)

    @cached_property
    def largest(self) -> int:
        """Number of atoms of the largest molecule."""
        return int(self.num_nodes_per_graph.max())

    def __getitem__(self, indices: Any) -> Self:
        """Return the molecules at `indices` (int, slice, bool mask or int array), in that order.

        Raises:
            UserError: when `indices` holds no molecule.
        """
        places = np.atleast_1d(np.arange(len(self))[indices])
        if len(places) == 0:
            raise UserError("The selection holds no molecules. Expected at least one.")
        taken = Gathered[Self]()
        for start in range(0, len(places), MOLECULES_AT_ONCE):
            taken.add(self._take(places[start : start + MOLECULES_AT_ONCE]))
        return taken.whole()

    def places_of(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Return the positions of molecules, their atoms and their bonds by the arrays' axis, and their numbers of atoms and of bonds."""
        num_nodes, num_edges = self.num_nodes_per_graph[indices], np.diff(self.edge_ptr)[indices]
        atoms, bonds = segment_index(self.node_ptr[indices], num_nodes), segment_index(self.edge_ptr[indices], num_edges)
        return {"molecule": indices, "atom": atoms, "bond": bonds}, num_nodes, num_edges

    def _take(self, indices: np.ndarray) -> Self:
        places, num_nodes, num_edges = self.places_of(indices)
        taken = {array.name: array.take(getattr(self, array.name), places[array.axis]) for array in ARRAYS if array.axis in places}
        return replace(self, node_ptr=pointers(num_nodes), edge_ptr=pointers(num_edges), **taken)

    def node_features(self, nodes: Any = slice(None)) -> np.ndarray:
        """Return the features of the given atoms, by default of all, float32 [n, F]."""
        return self.x[nodes] if self.table is None else self.table[self.x[nodes]]

    def edge_features(self, bonds: Any = slice(None)) -> np.ndarray:
        """Return the features of the given bonds, by default of all, float32 [n, D]. The set must have bond features."""
        assert self.edge_attr is not None
        return self.edge_attr[bonds] if self.edge_table is None else self.edge_table[self.edge_attr[bonds]]

    def content_hash(self) -> str:
        """Return the sha256 of everything a model can see: graphs, features and targets."""
        digest = hashlib.sha256()
        for name in (array.name for array in ARRAYS if array.seen):
            value = getattr(self, name)
            if value is not None:
                digest.update(f"{name}{value.dtype}{value.shape}".encode())
                digest.update(np.ascontiguousarray(value).data)
        return digest.hexdigest()


def _computed(values: np.ndarray, table: np.ndarray | None, own: int, of: Literal["atom", "bond"]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return features of atoms or bonds without the last `own` columns."""
    if own == 0:
        return values, table
    rows = (values if table is None else table)[:, :-own]
    return (values, rows) if table is not None else packing.encode_rows(rows, of) or (rows, None)
