from dataclasses import replace

import numpy as np

from molgcn.data import PackedMolecules
from molgcn.data.splits.parts import PARTS


def as_sets(split):
    return {part: set(split[part].tolist()) for part in PARTS}


def set_of(rows, **values):
    """Return a set of one molecule a row."""
    molecules = PackedMolecules.from_smiles(["C"])[[0] * len(rows)]
    return replace(molecules, rows=np.asarray(rows), **values)
