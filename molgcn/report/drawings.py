"""Drawings of molecules by RDKit, as pictures inside the page."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from molgcn.data.plain_molecule import without_labels
from molgcn.data.reaction_smiles import sides_of
from molgcn.report.plots import embedded

log = logging.getLogger(__name__)
_SIZE = 240, 170
_REACTION = 480, 170


@lru_cache(maxsize=256)  # a molecule that several targets show, and the largest take seconds
def draw(smiles: str) -> str | None:
    """Return the drawing of a SMILES, or of a reaction SMILES without its atom maps, as a `data:` URL.

    It is None where RDKit cannot read or draw the SMILES, or lacks a library that drawing needs.
    """
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdChemReactions

    drawing = rdkit_drawing()
    if drawing is None:
        return None
    with rdBase.BlockLogs():
        reaction = mol = None
        if sides_of(smiles) is not None:
            with suppress(ValueError):
                reaction = rdChemReactions.ReactionFromSmarts(without_labels(smiles, isotopes=False), useSmiles=True)
        else:
            mol = Chem.MolFromSmiles(smiles) or Chem.MolFromSmiles(smiles, sanitize=False)
        if reaction is None and (mol is None or mol.GetNumAtoms() == 0):
            return None
        drawer = drawing.MolDraw2DSVG(*(_REACTION if mol is None else _SIZE))
        options: Any = drawer.drawOptions()
        options.clearBackground = False
        options.fixedBondLength = 30
        options.minFontSize = 9
        options.padding = 0.06
        try:
            if mol is None:
                drawer.DrawReaction(reaction)
            else:
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
