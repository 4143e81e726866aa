"""What a model takes of a row of molecules, which its checkpoint says and a file of its exported network repeats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from molgcn.data.featurizers import get_featurizer
from molgcn.screening.descriptors import DescriptorInput

if TYPE_CHECKING:
    from molgcn.training.predictor import MoleculePredictor


@dataclass(frozen=True)
class ModelInputs:
    """What a model takes of a row.

    Attributes:
        features: the featuriser, as :func:`molgcn.data.featurizers.get_featurizer` takes it.
        bonds: whether it takes features of bonds.
        standardize: the standard form of molecules, one of :data:`molgcn.data.standardize.LEVELS`.
        components: the names of the molecules of a row. It is empty where a row is one molecule.
        descriptors: the descriptors.
        own_features: the names of the features of atoms and bonds that come from a file, by what they describe: "atom" or "bond".
    """

    features: str
    bonds: bool
    standardize: str
    components: tuple[str, ...]
    descriptors: DescriptorInput
    own_features: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, module: MoleculePredictor) -> ModelInputs:
        """Return what a module takes, whose features are those of a featuriser."""
        assert module.features is not None
        return cls(
            module.features,
            module.model.edge_channels is not None,
            module.config.dataset.standardize,
            tuple(components_of(module)),
            DescriptorInput.of(module),
            module.own_features,
        )

    def to_json(self) -> str:
        """Return the inputs as text, with the version of the featuriser, of which a later molgcn may have a newer one."""
        return json.dumps(asdict(self) | {"features": get_featurizer(self.features).versioned})

    @classmethod
    def from_json(cls, text: str) -> ModelInputs:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: when the text is something else.
        """
        try:
            values = json.loads(text)
            descriptors = DescriptorInput(**{name: tuple(names) for name, names in values.pop("descriptors").items()})
            return cls(**{**values, "components": tuple(values["components"]), "descriptors": descriptors})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(error) from error


def components_of(module: MoleculePredictor) -> list[str]:
    """Return the columns of the molecules of a row that a model was trained on. It is empty where a row is one molecule."""
    columns = module.config.dataset.smiles_columns
    return columns if len(columns) > 1 else []
