"""Molecules are drawn if RDKit can draw."""

import sys

import pytest

from molgcn.report import drawings


def test_a_molecule_is_a_picture():
    assert drawings.draw("c1ccccc1O").startswith("data:image/svg+xml;base64,")


def test_a_molecule_that_several_targets_show_is_drawn_once():
    assert drawings.draw("c1ccccc1O") is drawings.draw("c1ccccc1O")


@pytest.mark.parametrize("smiles", ["", "not a molecule"])
def test_what_cannot_be_read_is_not_drawn(smiles):
    assert drawings.draw(smiles) is None


def test_without_the_libraries_of_x11(monkeypatch, caplog):
    """The import fails on such a server, which is reported once, with the remedy."""
    drawings.draw.cache_clear()
    monkeypatch.setitem(sys.modules, "rdkit.Chem.Draw", None)
    drawings.rdkit_drawing.cache_clear()
    assert [drawings.draw(smiles) for smiles in ("CCO", "CCO")] == [None, None]
    assert caplog.text.count("apt install libxrender1") == 1
    drawings.rdkit_drawing.cache_clear()
    drawings.draw.cache_clear()
