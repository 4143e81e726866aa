"""Drawings of molecules by RDKit, as pictures inside the page."""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType
from typing import Any

from molgcn.report.charts import embedded

log = logging.getLogger(__name__)
_SIZE = 240, 170


def draw(smiles: str) -> str | None:
    """Return the drawing of a SMILES as a `data:` URL.

    It is None where RDKit cannot read or draw the SMILES, or lacks a library that drawing needs.
    """
    from rdkit import Chem, rdBase

    drawing = rdkit_drawing()
    if drawing is None:
        return None
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles) or Chem.MolFromSmiles(smiles, sanitize=False)
        if mol is None or mol.GetNumAtoms() == 0:
            return None
        drawer = drawing.MolDraw2DSVG(*_SIZE)
        options: Any = drawer.drawOptions()
        options.clearBackground = False
        options.fixedBondLength = 30
        options.minFontSize = 9
        options.padding = 0.06
        try:
            drawing.PrepareAndDrawMolecule(drawer, mol)
        except (ValueError, RuntimeError):  # a molecule kept although RDKit refuses it
            return None
        drawer.FinishDrawing()
    return embedded(drawer.GetDrawingText().encode(), "image/svg+xml")


@cache
def rdkit_drawing() -> ModuleType | None:
    """Return the module `rdMolDraw2D` of RDKit, or None where its X11 libraries are missing, as on many servers and in containers."""
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        log.warning("There are no drawings of molecules: %s. On Debian and Ubuntu `apt install libxrender1 libxext6` adds them.", error)
        return None
    return rdMolDraw2D
