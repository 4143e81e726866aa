"""Drawings of molecules by RDKit, as pictures inside the page."""

from __future__ import annotations

from typing import Any

from molgcn.report.charts import embedded

_SIZE = 240, 170


def draw(smiles: str) -> str | None:
    """A drawing as a `data:` address; None where RDKit cannot read or draw the SMILES."""
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles) or Chem.MolFromSmiles(smiles, sanitize=False)
        if mol is None or mol.GetNumAtoms() == 0:
            return None
        drawer = rdMolDraw2D.MolDraw2DSVG(*_SIZE)
        options: Any = drawer.drawOptions()
        options.clearBackground = False
        options.fixedBondLength = 30
        options.minFontSize = 9
        options.padding = 0.06
        try:
            rdMolDraw2D.PrepareAndDrawMolecule(drawer, mol)
        except (ValueError, RuntimeError):  # a molecule kept although RDKit refuses it
            return None
        drawer.FinishDrawing()
    return embedded(drawer.GetDrawingText().encode(), "image/svg+xml")
