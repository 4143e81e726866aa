"""Molecules are drawn where RDKit can."""

import sys

import pytest

from molgcn.report import drawings


def test_a_molecule_is_a_picture():
    assert drawings.draw("c1ccccc1O").startswith("data:image/svg+xml;base64,")


@pytest.mark.parametrize("smiles", ["", "not a molecule"])
def test_what_cannot_be_read_is_not_drawn(smiles):
    assert drawings.draw(smiles) is None


def test_without_the_libraries_of_x11(monkeypatch, caplog):
    """As on a server, where the import fails: said once, with the remedy."""
    monkeypatch.setitem(sys.modules, "rdkit.Chem.Draw", None)
    drawings._drawing.cache_clear()
    try:
        assert drawings.draw("CCO") is None
        assert drawings.draw("CCO") is None
    finally:
        drawings._drawing.cache_clear()
    assert sum("apt install libxrender1" in message for message in caplog.messages) == 1
