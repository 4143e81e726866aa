"""Turns SMILES, reaction SMILES, mol blocks or RDKit molecules into packed sets, in worker processes.

A worker returns a whole packed chunk, in which each atom has a code into the chunk's distinct feature rows. Chunks are joined as they
come, so that only a few are in memory beside the set. The number of workers does not change the order of the table, first appearance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

import numpy as np

from molgcn.data.concat import FeatureTable
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.descriptors.generators import calculator, generated_names
from molgcn.data.featurizers import Featurizer, ReactionFeaturizer, get_featurizer
from molgcn.data.graph_arrays import GraphArrays
from molgcn.data.labels import LABELS
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.data.packed_arrays import ARRAYS, Gathered
from molgcn.data.plain_molecule import count_hydrogens
from molgcn.data.reactions import Reaction
from molgcn.data.rows import Files, named_row
from molgcn.data.segments import segment_index
from molgcn.data.standardize import Read, item_reader
from molgcn.data.workers import map_chunks
from molgcn.errors import UserError, counted, first_of, shown

OnError = Literal["raise", "skip"]
Kind = Literal["smiles", "molblock", "sdf"]


@dataclass
class Featurized:
    """The result of featurising items: M molecules, and why the other items were left out."""

    molecules: MoleculeSet | None  # the packed molecules without targets, or None where there are none
    kept: np.ndarray  # int64 [M], position of each molecule in the input
    labels: np.ndarray | None = None  # float64 [M], or None when no label was asked for
    smiles: list[str] | None = None  # M SMILES written by RDKit, before any standardisation, or None when the input was SMILES
    failures: list[tuple[int, str]] = field(default_factory=list)  # position in the input of every item left out, and the reason

    @property
    def packed(self) -> MoleculeSet:
        """The packed molecules of a result that has some."""
        assert self.molecules is not None
        return self.molecules


def featurize_items(
    items: Sequence[Any],
    *,
    features: str,
    on_error: OnError = "raise",
    num_workers: int | None = None,
    kind: Kind = "smiles",
    label: str | None = None,
    rows: np.ndarray | None = None,
    source: str = "",
    files: Files = (),
    **options: Any,
) -> Featurized:
    """Featurise items of one kind, SMILES, mol blocks or `rdkit.Chem.Mol`, and compute a label and descriptors in the same pass.

    For `features`, `on_error`, `num_workers` and errors see :meth:`molgcn.data.PackedMolecules.from_smiles`, for `options`
    :func:`featurize_chunk`. Messages name an item by `source`, its number in `rows`, by default its position, and its file, if the source
    has several `files`.
    """
    get_featurizer(features)  # reports an unknown name before any worker starts
    if on_error not in ("raise", "skip"):
        raise UserError(f"on_error={on_error} is not an option. Use raise or skip.")
    if isinstance(items, str):  # otherwise a sequence of letters
        raise UserError(f"'{shown(items)}' is a single text. Expected a list of SMILES, as in ['{shown(items)}'].")
    if len(items) == 0:
        raise UserError(f"{source or 'The list of SMILES'} holds no molecules. Expected at least one row.")
    work = partial(featurize_chunk, features=features, kind=kind, label=label, **options)
    kept: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    smiles: list[str] = []
    failures: list[tuple[int, str]] = []
    joined, tables = Gathered[MoleculeSet](), [FeatureTable(array) for array in ARRAYS if array.table is not None]
    position = 0
    for part in map_chunks(work, items, num_workers=num_workers, description=f"features={features}"):
        if part.molecules is not None:
            joined.add(reduce(lambda molecules, table: table.recode(molecules), tables, part.molecules))
        kept.append(part.kept + position)
        labels += [] if part.labels is None else [part.labels]
        smiles += part.smiles or []
        failures += [(position + local, reason) for local, reason in part.failures]
        position += len(part.kept) + len(part.failures)
    if failures and on_error == "raise":
        index, reason = failures[0]
        where = named_row(source or "the list of SMILES", files, index if rows is None else int(rows[index]), kind)
        raise UserError(
            f"{where}: '{_first_line(items[index])}' cannot be used: {reason}. {first_of(len(failures), len(items))} Correct it, or leave "
            "such rows out with on_error=skip (dataset.on_error=skip on the command line), which counts and lists them."
        )
    if not sum(map(len, kept)):
        index, reason = failures[0]
        everything = f"{counted(len(items), 'molecule')} of {source or 'the list'}"
        raise UserError(f"None of the {everything} can be used. The first, '{_first_line(items[index])}': {reason}.")
    molecules = reduce(lambda molecules, table: table.attach(molecules), tables, joined.whole())
    written = None if kind == "smiles" else smiles
    return Featurized(molecules, np.concatenate(kept), np.concatenate(labels) if labels else None, written, failures)


def as_text(item: Any) -> str:
    return item if isinstance(item, str) else "" if item is None or isinstance(item, float) else type(item).__name__


def _first_line(item: Any) -> str:
    """Return what messages show of an item: the SMILES, or the name of a mol block."""
    return shown((as_text(item).splitlines() or [""])[0])


def featurize_chunk(
    items: Sequence[Any],
    *,
    features: str,
    kind: Kind,
    label: str | None,
    bonds: bool = True,
    generators: Sequence[str] = (),
    tree_generators: Sequence[str] = (),
    standardize: str = "none",
    bond_numbers: bool = False,
    component: int = 0,
) -> Featurized:
    """Featurise a chunk of items in this process, see :func:`featurize_items`.

    Features, label and descriptors are those of the standard form (`standardize`). Descriptors of `tree_generators` are NaN where RDKit
    cannot compute them. Without `bonds` it gives bonds no features, for models that do not read them. With `bond_numbers` the set knows
    RDKit's number of each bond. Items are reactions if the features say so of this `component` of a row.
    """
    from rdkit import rdBase

    label_of = None if label is None else LABELS[label]
    featurizer = get_featurizer(features)
    graphs = GraphArrays(featurizer, bonds)
    read = _reader(featurizer, kind, standardize, component)
    calculate_for_trees = calculator(tree_generators, featurizer.keeps_isotopes, missing=True) if tree_generators else None
    calculate = calculator(generators, featurizer.keeps_isotopes) if generators else None
    done: list[tuple[Any, ...]] = []  # position, SMILES, label, descriptors and those for trees of each molecule
    failures: list[tuple[int, str]] = []
    with rdBase.BlockLogs():
        for position, item in enumerate(items):
            try:
                mol, smiles, own = read(item)
                values = None if calculate is None else calculate(smiles)
                trees = None if calculate_for_trees is None else calculate_for_trees(smiles).astype(np.float32)
                graphs.add(mol)
            except InvalidMoleculeError as error:
                failures.append((position, str(error)))
                continue
            found = None if label_of is None else label_of(count_hydrogens(mol))  # of heavy atoms, whatever the features take
            done.append((position, own, found, values, trees))
    arrays, refused = graphs.finish()
    for number in sorted(refused, reverse=True):
        failures.append((done.pop(number)[0], refused[number]))
    kept, written, labels, descriptors, for_trees = ([one[place] for one in done] for place in range(5))
    molecules = None
    if kept:
        molecules = MoleculeSet.from_arrays(**arrays, features=features)
        if bond_numbers:
            molecules = replace(molecules, bond_number=_bond_numbers(arrays["num_edges"], arrays["edge_index"]))
        if generators:
            molecules = with_descriptors(molecules, np.stack(descriptors), generated_names(generators))
        if tree_generators:
            molecules = replace(molecules, tree_descriptors=np.stack(for_trees))
    return Featurized(
        molecules,
        kept=np.array(kept, np.int64),
        labels=None if label is None else np.array(labels, np.float64),
        smiles=None if kind == "smiles" else written,
        failures=sorted(failures),
    )


def _bond_numbers(num_edges: np.ndarray, edge_index: np.ndarray) -> np.ndarray:
    """Return RDKit's number of each bond in its molecule, int32 [E], in the order of packed bonds: by molecule, target and source.

    In `edge_index` both directions of each bond stand next to each other, in RDKit's order.
    """
    molecule = np.repeat(np.arange(len(num_edges)), num_edges)
    numbers = segment_index(np.zeros_like(num_edges), num_edges) // 2
    return numbers[np.lexsort((*edge_index, molecule))].astype(np.int32)


def _reader(featurizer: Featurizer, kind: Kind, standardize: str, component: int) -> Callable[[Any], Read]:
    """Return the function that reads items of a kind for a featuriser, see :func:`molgcn.data.standardize.item_reader`."""
    if isinstance(featurizer, ReactionFeaturizer) and component in featurizer.reactions:
        if kind != "smiles":
            raise UserError("The model takes reactions, which a file of structures does not have. Give reaction SMILES in a table or list.")
        return item_reader("reaction", "counted", True)
    hydrogens = "implicit" if featurizer.keeps_isotopes else "counted"
    if featurizer.hydrogens == "explicit" and kind == "molblock" and standardize == "none":
        hydrogens = "explicit"
    return item_reader(kind, hydrogens, featurizer.stereo != "none", standardize)


class Side(NamedTuple):
    """A molecule that is shown of an item: the item itself, or a side of a reaction."""

    name: str  # "", "reactants" or "products"
    mol: Any  # the `rdkit.Chem.Mol`
    atoms: np.ndarray  # the atom of the item's graph that each of its atoms is


def sides_of_graph(item: Any, features: str, kind: Kind, standardize: str = "none", component: int = 0) -> list[Side]:
    """Return the molecules whose atoms are the first atoms of the graph that an item becomes: one, or both sides of a reaction.

    All further atoms of the graph are hydrogens. The item must be one for which :func:`featurize_chunk` does not fail.
    """
    from rdkit import rdBase

    featurizer = get_featurizer(features)
    with rdBase.BlockLogs():
        mol = _reader(featurizer, kind, standardize, component)(item).mol
    if isinstance(mol, Reaction):
        return [Side("reactants", mol.reactants, np.arange(len(mol.becomes))), Side("products", mol.products, mol.places)]
    return [Side("", mol, np.arange(mol.GetNumAtoms()))]
