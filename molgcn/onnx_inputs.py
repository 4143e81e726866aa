"""The inputs of an exported network, made from SMILES without PyTorch.

The code is that of `python -m molgcn.predict`, and the file's metadata say what the network takes. docs/prediction.md has an example, and
names the packages that are needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from molgcn.data.layout import with_encodings
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed import PackedMolecules
from molgcn.data.rdkit_version import check_rdkit
from molgcn.data.tiles import HAS_EXTENSION
from molgcn.errors import UserError, row_of, shown
from molgcn.screening.chunk import shown_row
from molgcn.screening.components import as_rows
from molgcn.screening.inputs import ModelInputs
from molgcn.screening.ready import MOLECULES_AT_ONCE, prepare_records

SOURCE = "The exported network"


class OnnxInputs:
    """Turns SMILES into the inputs of an exported network.

    Args:
        session: the network's `onnxruntime.InferenceSession`, whose metadata and inputs are read.

    Attributes:
        columns: the names of the network's P predictions, such as "gap [eV] predicted".
        components: the names of the molecules of a row, such as a solute and its solvent. It is empty where a row is one molecule.
        descriptors: the names of the descriptors that come with the rows. RDKit computes all others.
        own_features: the names of the features of "atom" and "bond" that come with the rows.

    Raises:
        UserError: when the file does not say how its inputs are made, or they cannot be made with what is installed.
    """

    def __init__(self, session: Any) -> None:
        about: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
        if about.get("inputs") == "":
            raise UserError(f"{SOURCE} was trained on graphs that were not computed from SMILES. Make its inputs from such graphs.")
        try:
            self._inputs = ModelInputs.from_json(about["inputs"])
            names, versions = json.loads(about["descriptor_names"]), dict(json.loads(about["versions"]))
            self.columns: list[str] = json.loads(about["outputs"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{SOURCE} does not say how this version of molgcn makes its inputs ({type(error).__name__}: {error}). Write the file "
                "again with python -m molgcn.export of the version that reads it."
            ) from error
        self.components, self.descriptors = list(self._inputs.components), list(self._inputs.descriptors.given)
        self.own_features = self._inputs.own_features
        self._widths = {one.name: one.shape[-1] for one in session.get_inputs()}
        if not HAS_EXTENSION and find_spec("torch") is None and {"rwse", "bond_rw"} & self._widths.keys():
            raise UserError(
                f"{SOURCE} takes encodings of random walks, which molgcn's C++ extension or PyTorch computes, and neither is installed. "
                "Install molgcn with a C++ compiler, or add torch."
            )
        check_rdkit(
            SOURCE,
            versions.get("rdkit"),
            names,
            generators=self._inputs.descriptors.generators,
            components=self.components or [""],
            standardize=self._inputs.standardize,
        )

    def __call__(
        self,
        smiles: Sequence[str] | Sequence[Sequence[str]],
        descriptors: np.ndarray | None = None,
        num_workers: int | None = None,
        atom_features: Sequence[np.ndarray] | None = None,
        bond_features: Sequence[np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the inputs of M molecules as one batch, by name, for `session.run(None, inputs)`.

        Args:
            smiles: M SMILES. For networks whose rows are several molecules, M lists with one SMILES per molecule.
            descriptors: [M, K], the descriptors that `descriptors` names, as they are in files. None where it names none.
            num_workers: the number of processes that read molecules. None means one per core from 10,000 molecules on.
            atom_features: M matrices [atoms, K], the own features of atoms that the network takes. None where it takes none.
            bond_features: M matrices [bonds, K], the own features of bonds. None where the network takes none.

        Raises:
            UserError: for a string that is not a molecule, with its row, and for descriptors or own features of another shape.
        """
        if isinstance(smiles, str) or len(smiles) == 0:
            raise UserError(f"Expected a list of at least one SMILES, not {smiles!r}.")
        records = self._inputs.rows_of(as_rows(smiles), descriptors, atom_features, bond_features)
        parts: list[PackedMolecules] = []
        for part in prepare_records(self._inputs, records, "smiles", MOLECULES_AT_ONCE, num_workers):
            for place, reason in sorted(part.errors.items()):
                row, text = row_of("the list of SMILES", part.start + place), shown(shown_row(part, place))
                raise UserError(f"{row}: '{text}' cannot be an input: {reason}. Correct it, or leave it out.")
            assert part.molecules is not None
            parts.append(part.molecules)
        molecules = with_encodings(PackedMolecules.concat(parts), self._widths.get("rwse", 0), self._widths.get("bond_rw", 0))
        arrays = arrays_of(molecules)
        return {name: arrays[name] for name in self._widths}


def arrays_of(molecules: MoleculeSet) -> dict[str, np.ndarray]:
    """Return all molecules of a set as one batch, with the names, order, shapes and dtypes of an exported network's inputs.

    They are those of :class:`molgcn.nn.exported.ExportedNetwork`.
    """
    atoms, bonds = molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr)
    source = molecules.neighbors + np.repeat(molecules.node_ptr[:-1], bonds)
    target = np.repeat(np.arange(molecules.num_nodes), molecules.degree)
    arrays = {
        "x": molecules.node_features(),
        "edge_index": np.stack([source, target]),
        "batch": np.repeat(np.arange(len(molecules)), atoms),
        "rwse": molecules.rwse,
        "bond_rw": molecules.bond_rw,
        "descriptors": molecules.descriptors,
        "edge_attr": None if molecules.edge_attr is None else molecules.edge_features(),
        "component": None if molecules.component is None else molecules.component.astype(np.int32),
    }
    return {name: array for name, array in arrays.items() if array is not None}
