"""What a model takes of a row of molecules, which its checkpoint says and a file of its exported network repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.featurizers import get_featurizer
from molgcn.data.formats import Record
from molgcn.screening.descriptors import DescriptorInput, smiles_records
from molgcn.screening.own_features import given_own_features

if TYPE_CHECKING:
    from molgcn.training.predictor import MoleculePredictor


@dataclass(frozen=True)
class ModelInputs:
    """What a model takes of a row."""

    features: str  # the featuriser, as :func:`molgcn.data.featurizers.get_featurizer` takes it
    bonds: bool  # whether it takes features of bonds
    standardize: str  # the standard form of molecules, one of :data:`molgcn.data.standardize.LEVELS`
    components: tuple[str, ...]  # the names of the molecules of a row. It is empty where a row is one molecule
    descriptors: DescriptorInput  # the descriptors
    # the names of the features of atoms and bonds that come from a file, by what they describe: "atom" or "bond"
    own_features: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, module: MoleculePredictor) -> ModelInputs:
        """Return what a module takes, whose features are those of a featuriser."""
        assert module.features is not None
        dataset = module.config.dataset
        components = tuple(dataset.smiles_columns) if len(dataset.smiles_columns) > 1 else ()
        bonds = module.model.edge_channels is not None
        return cls(module.features, bonds, dataset.standardize, components, DescriptorInput.of(module), module.own_features)

    def rows_of(
        self,
        smiles: Sequence[str] | Sequence[Sequence[str]],
        descriptors: np.ndarray | None,
        atom_features: Sequence[np.ndarray] | None,
        bond_features: Sequence[np.ndarray] | None,
    ) -> Iterator[Record]:
        """Return M SMILES in memory as rows with their descriptors and own features; see :meth:`molgcn.model.Model.predict`."""
        records = smiles_records(smiles, descriptors, self.descriptors, self.components)
        return given_own_features(records, len(smiles), self.own_features, {"atom": atom_features, "bond": bond_features})

    def to_json(self) -> str:
        """Return the inputs as text, with the version of the featuriser, of which a later molgcn may have a newer one."""
        return json.dumps(asdict(self) | {"features": get_featurizer(self.features).versioned})

    @classmethod
    def from_json(cls, text: str) -> ModelInputs:
        """Read what :meth:`to_json` wrote; anything else is a ValueError."""
        try:
            values = json.loads(text)
            descriptors = DescriptorInput(**{name: tuple(names) for name, names in values.pop("descriptors").items()})
            return cls(**{**values, "components": tuple(values["components"]), "descriptors": descriptors})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(error) from error
