"""Drawings of molecules with their contributions as coloured halos around atoms."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from molgcn.explain.contributions import Parts
from molgcn.report.drawings import rdkit_drawing

SIZE = 420, 320
LOWERS, RAISES = (0.82, 0.39, 0.16), (0.12, 0.44, 0.71)  # orange and blue
_WIDTH = 0.45  # the standard deviation of a halo, in the units of RDKit's coordinates, where a bond is 1.5 long
_MARGIN = 3 * _WIDTH  # around the atoms, beyond which a halo is white
_LEAST = 4.2, 3.2  # half of the width and the height of a picture, so that small molecules are not drawn larger than others
_STEP = 0.1  # the distance of two points of the grid of colours


def draw_contributions(mol: Any, weights: np.ndarray, scale: float, image: Literal["png", "svg"]) -> bytes | None:
    """Return a picture of an `rdkit.Chem.Mol` with the contributions of its atoms [N], or None where RDKit cannot draw it.

    A contribution of `scale` has the full colour. Larger ones have it too. See :func:`on_drawn_atoms`.
    """
    drawing = rdkit_drawing()
    if drawing is None:
        return None
    from rdkit import rdBase

    drawer = {"svg": drawing.MolDraw2DSVG, "png": drawing.MolDraw2DCairo}[image](*SIZE)
    try:
        with rdBase.BlockLogs():
            mol = drawing.PrepareMolForDrawing(mol, addChiralHs=False)
            _draw_halos(drawer, mol, weights / scale if scale else weights)
            drawer.DrawMolecule(mol)
    except (ValueError, RuntimeError):  # RDKit cannot sanitize the molecule
        return None
    drawer.FinishDrawing()
    picture = drawer.GetDrawingText()
    return picture.encode() if isinstance(picture, str) else picture


def _draw_halos(drawer: Any, mol: Any, weights: np.ndarray) -> None:
    """Draw the halos of atoms whose weights, float64 [N], are shares of the full colour."""
    from rdkit.Chem.Draw import rdMolDraw2D

    places = mol.GetConformer().GetPositions()[:, :2]
    middle, reach = (places.max(axis=0) + places.min(axis=0)) / 2, np.ptp(places, axis=0) / 2 + _MARGIN
    reach = np.maximum(reach, _LEAST)
    low, high = middle - reach, middle + reach
    x, y = (np.arange(start, stop + _STEP, _STEP) for start, stop in zip(low, high, strict=True))
    across, along = (np.exp(-(((axis - place[:, None]) / _WIDTH) ** 2) / 2) for axis, place in zip((x, y), places.T, strict=True))
    field = np.einsum("a,ax,ay->xy", weights, across, along).clip(-1, 1)
    strongest = float(np.abs(field).max())
    parameters: Any = rdMolDraw2D.ContourParams()
    parameters.fillGrid, parameters.gridResolution = True, _STEP
    parameters.useFillThreshold, parameters.fillThresholdIsFraction, parameters.fillThreshold = True, False, 0.01
    # RDKit gives the last colours to the largest value of the grid, here the colours of that share of the scale
    parameters.setColourMap([_shade(LOWERS, strongest), (1.0, 1.0, 1.0), _shade(RAISES, strongest)])
    drawer.ClearDrawing()
    rdMolDraw2D.ContourAndDrawGrid(drawer, field, x.tolist(), y.tolist(), 0, [], parameters, mol)
    drawer.drawOptions().clearBackground = False


def _shade(colour: tuple[float, float, float], share: float) -> tuple[float, ...]:
    return tuple(1 + share * (part - 1) for part in colour)


def on_drawn_atoms(contributions: Parts, count: int) -> np.ndarray:
    """Return the contributions [count] of the first atoms. Those of the hydrogens after them are added to their neighbours."""
    values = contributions.of_atoms
    beyond = contributions.ends[contributions.ends[:, 1] >= count]
    np.add.at(values, beyond[:, 0], values[beyond[:, 1]])
    return values[:count]
