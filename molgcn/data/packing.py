"""Turns arrays of molecules into the packed layout. Every check on a molecule happens here, once, before training."""

from __future__ import annotations

from typing import Literal

import numpy as np

from molgcn.data.packed_arrays import MOLECULES_AT_ONCE
from molgcn.data.segments import pointers, smallest_uint
from molgcn.errors import UserError

MAX_ATOMS = 65_535
MAX_DEGREE = 65_535
MAX_CODES = 65_536
MAX_BOND_CODES = 1024  # layers map all distinct rows of bonds once a batch, which has some thousand bonds


def _first(mask: np.ndarray) -> int:
    return int(np.flatnonzero(mask)[0])


def pack_graphs(
    num_nodes: np.ndarray, num_edges: np.ndarray, edge_index: np.ndarray, edge_attr: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Check the bonds of all molecules and sort them into CSR order.

    For the arguments see :meth:`molgcn.data.molecule_set.MoleculeSet.from_arrays`; `edge_attr` may also be codes [E].

    Returns:
        The arrays by name:

        - `node_ptr` and `edge_ptr`: int64 [M + 1].
        - `degree`: uint8 or uint16 [N], number of bonds that point at each atom.
        - `neighbors`: uint8 or uint16 [E], molecule-local sources, sorted by molecule, target, source.
        - `edge_attr`: if given, in the order of `neighbors`. Duplicate bonds keep their order.

    Raises:
        UserError: when there is no molecule, a molecule has no atoms or more than 65,535, counts do not fit, an index is out of range, a
            bond has no reverse, or an atom has more than 65,535 bonds.
    """
    num_nodes, num_edges = np.asarray(num_nodes, np.int64), np.asarray(num_edges, np.int64)
    edge_index = np.asarray(edge_index).reshape(2, -1)
    if len(num_nodes) == 0:
        raise UserError("The set has no molecules. Expected at least one; check the input file or the filters applied to it.")
    if np.any(num_nodes < 1):
        raise UserError(f"Molecule {_first(num_nodes < 1)} has no atoms. Remove it or use on_error=skip.")
    if np.any(num_nodes > MAX_ATOMS):
        bad = _first(num_nodes > MAX_ATOMS)
        raise UserError(f"Molecule {bad} has {num_nodes[bad]:,} atoms; at most {MAX_ATOMS:,} are supported. Remove it.")
    if len(num_edges) != len(num_nodes) or num_edges.sum() != edge_index.shape[1]:
        raise UserError(
            f"Bond counts do not fit: {len(num_nodes)} molecules, {len(num_edges)} counts that sum to {num_edges.sum()}, "
            f"edge_index of {edge_index.shape[1]} bonds. Expected one count per molecule and their sum as many columns."
        )
    if edge_attr is not None and len(edge_attr) != edge_index.shape[1]:
        raise UserError(
            f"There are features for {len(edge_attr)} bonds, but edge_index has {edge_index.shape[1]}; expected one row per directed bond."
        )
    edge_ptr, pieces = pointers(num_edges), []
    for first in range(0, len(num_nodes), MOLECULES_AT_ONCE):
        piece = slice(first, first + MOLECULES_AT_ONCE)
        bonds = edge_ptr[first : first + MOLECULES_AT_ONCE + 1]
        edges = slice(bonds[0], bonds[-1])
        carried = None if edge_attr is None else edge_attr[edges]
        pieces.append(_pack_piece(num_nodes[piece], num_edges[piece], edge_index[:, edges], carried, first))
    degree, neighbors, carried_by_all = zip(*pieces, strict=True)
    packed = {
        "node_ptr": pointers(num_nodes),
        "edge_ptr": edge_ptr,
        "degree": np.concatenate(degree),
        "neighbors": np.concatenate(neighbors),
    }
    return packed if edge_attr is None else packed | {"edge_attr": np.concatenate(carried_by_all)}


def _pack_piece(
    num_nodes: np.ndarray, num_edges: np.ndarray, edge_index: np.ndarray, edge_attr: np.ndarray | None, first: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return `degree`, `neighbors` and `edge_attr` of consecutive molecules, of which the first is number `first` of the set."""
    edge_index = edge_index.astype(np.int64)
    molecule = np.repeat(np.arange(len(num_nodes)), num_edges)
    outside = np.any((edge_index < 0) | (edge_index >= num_nodes[molecule]), axis=0)
    if outside.any():
        bad = _first(outside)
        raise UserError(
            f"Bond {edge_index[0, bad]} -> {edge_index[1, bad]} of molecule {first + molecule[bad]} is out of range: it has "
            f"{num_nodes[molecule[bad]]} atoms, numbered from 0."
        )
    node_ptr = pointers(num_nodes)
    source, target = edge_index + node_ptr[molecule]
    total = int(node_ptr[-1])
    incoming = target * total + source
    if edge_attr is None:
        incoming.sort()
    else:
        order = np.argsort(incoming, kind="stable")
        incoming, edge_attr = incoming[order], edge_attr[order]
    outgoing = np.sort(source * total + target)
    if not np.array_equal(incoming, outgoing):
        bad = _first(incoming != outgoing)
        pair = divmod(int(min(incoming[bad], outgoing[bad])), total)
        mol = int(np.searchsorted(node_ptr, pair[0], side="right")) - 1
        i, j = (int(node - node_ptr[mol]) for node in pair)
        raise UserError(
            f"Molecule {first + mol} has a bond between atoms {i} and {j} in one direction only. Bonds are undirected here: give both "
            "directions, as torch_geometric.utils.to_undirected does."
        )
    target, source = np.divmod(incoming, total)
    degree = np.bincount(target, minlength=total)
    if degree.max(initial=0) > MAX_DEGREE:
        bad = _first(degree > MAX_DEGREE)
        mol = int(np.searchsorted(node_ptr, bad, side="right")) - 1
        raise UserError(
            f"Atom {bad - node_ptr[mol]} of molecule {first + mol} has {degree[bad]:,} bonds, duplicates counted; at most {MAX_DEGREE:,} "
            "are supported. Remove duplicate bonds, as torch_geometric.utils.coalesce does."
        )
    neighbors = source - node_ptr[molecule]
    neighbors = neighbors.astype(smallest_uint(int(num_nodes.max()) - 1))
    return degree.astype(smallest_uint(int(degree.max(initial=0)))), neighbors, edge_attr


def pack_features(
    x: np.ndarray | None, codes: np.ndarray | None, table: np.ndarray | None, of: Literal["atom", "bond"] = "atom"
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return features as codes and their table, or as rows and None where codes would not make them smaller.

    Features are given as `x`, or as `codes` and `table`. Names in messages are those of atoms or bonds (`of`).
    """
    names = ("x", "codes", "table") if of == "atom" else ("edge_attr", "edge_codes", "edge_table")
    if (x is None) == (codes is None) or (codes is None) != (table is None):
        raise ValueError(f"give either {names[0]}, or {names[1]} and {names[2]}")
    if x is not None:
        x = check_features(x, names[0])
        return encode_rows(x, of) or (x, None)
    assert codes is not None and table is not None
    codes, table = np.asarray(codes), check_table(table, names[2])
    if np.any((codes < 0) | (codes >= len(table))):
        raise UserError(f"The code of {'an atom' if of == 'atom' else 'a bond'} is outside the {names[2]} of {len(table)} feature rows.")
    return codes.astype(smallest_uint(len(table) - 1)), table


def check_table(table: np.ndarray, what: str = "table") -> np.ndarray:
    """Return a table of at most 65,536 distinct feature rows as float32 [K, F], or raise UserError."""
    table = check_features(table, what)
    if len(table) > MAX_CODES:
        rows = "x" if what == "table" else "edge_attr"
        raise UserError(f"The {what} has {len(table):,} feature rows; at most {MAX_CODES:,} are supported. Give {rows} instead.")
    return table


def encode_rows(x: np.ndarray, of: Literal["atom", "bond"] = "atom") -> tuple[np.ndarray, np.ndarray] | None:
    """Return codes uint8 or uint16 [N] and a table float32 [K, F] of distinct rows with `x = table[codes]`.

    None is returned if these take more than the rows, or bonds have more than 1,024 distinct ones, as with distances.
    """
    rows = np.ascontiguousarray(x, np.float32) + np.float32(0)  # turns -0.0 into 0.0, so that equal values have equal bytes
    keys = rows.view(np.dtype((np.void, rows.shape[1] * 4))).ravel()
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > (MAX_CODES if of == "atom" else MAX_BOND_CODES) or 2 * len(first) > len(rows):
        return None
    return codes.astype(smallest_uint(len(first) - 1)), rows[first]


def check_features(x: np.ndarray, what: str = "x") -> np.ndarray:
    """Return features as float32 [rows, F], or raise UserError where they are no matrix of finite numbers with at least one column."""
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is reported below
        x = np.asarray(x, np.float32, order="C")
    if x.ndim != 2 or x.shape[1] < 1:
        raise UserError(f"The features `{what}` have shape {list(x.shape)}; expected [rows, features] with at least one feature.")
    finite = np.isfinite(x).all(axis=1)
    if not finite.all():
        raise UserError(f"Row {_first(~finite)} of the features `{what}` holds a value that is not finite (float32). Remove or correct it.")
    return x


def check_targets(targets: np.ndarray | None, num_molecules: int) -> np.ndarray:
    """Return targets as floating-point numbers [M, T], NaN where missing, or [M, 0] for None, after checking their shape.

    A floating-point dtype is kept. Any other becomes float64. No value may be infinite as float32.
    """
    if targets is None:
        return np.zeros((num_molecules, 0), np.float32)
    targets = np.asarray(targets)
    targets = targets.astype(targets.dtype if targets.dtype.kind == "f" else np.float64, order="C", copy=False)
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or len(targets) != num_molecules:
        raise UserError(f"The targets have shape {list(targets.shape)}; expected [{num_molecules}, number of targets], a row per molecule.")
    with np.errstate(over="ignore"):
        infinite = np.isinf(targets.astype(np.float32))
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise UserError(f"Target {column} of molecule {row} is infinite (float32). Correct it, or leave it empty (NaN) if it is missing.")
    return targets
