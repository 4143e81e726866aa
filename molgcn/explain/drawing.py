"""Drawings of molecules with their contributions, as similarity maps of RDKit."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from molgcn.explain.contributions import Parts
from molgcn.report.drawings import rdkit_drawing

SIZE = 420, 320
_COLOURS = [(0.82, 0.39, 0.16), (1.0, 1.0, 1.0), (0.12, 0.44, 0.71)]  # orange lowers, blue raises


def draw_contributions(mol: Any, contributions: Parts, image: Literal["png", "svg"]) -> bytes | None:
    """Return a picture of a molecule with its contributions, or None where RDKit cannot draw it.

    The contribution of a hydrogen that is not an atom of `mol` is added to its neighbour. The darkest colour is the largest contribution of
    the molecule.

    Args:
        mol: an `rdkit.Chem.Mol` whose atoms are the first atoms of the graph.
        contributions: the contributions of the graph's atoms and bonds.
        image: the format of the picture.
    """
    drawing = rdkit_drawing()
    if drawing is None:
        return None
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import SimilarityMaps

    weights = on_drawn_atoms(contributions, mol.GetNumAtoms())
    drawer = {"svg": drawing.MolDraw2DSVG, "png": drawing.MolDraw2DCairo}[image](*SIZE)
    try:
        with rdBase.BlockLogs():
            if mol.GetNumAtoms() > 1 and np.abs(weights).max() > 0:
                options = {"colorMap": _COLOURS, "contourLines": 0, "useFillThreshold": True, "fillThreshold": 0.02}
                SimilarityMaps.GetSimilarityMapFromWeights(Chem.Mol(mol), weights.tolist(), drawer, **options)
            else:
                drawing.PrepareAndDrawMolecule(drawer, mol)
    except (ValueError, RuntimeError):  # RDKit cannot sanitize the molecule
        return None
    drawer.FinishDrawing()
    picture = drawer.GetDrawingText()
    return picture.encode() if isinstance(picture, str) else picture


def on_drawn_atoms(contributions: Parts, count: int) -> np.ndarray:
    """Return the contributions [count] of the first atoms. Those of the hydrogens after them are added to their neighbours."""
    values = contributions.of_atoms
    beyond = contributions.ends[contributions.ends[:, 1] >= count]
    np.add.at(values, beyond[:, 0], values[beyond[:, 1]])
    return values[:count]
