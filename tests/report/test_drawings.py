"""Molecules are drawn if RDKit can draw."""

import subprocess
import sys

import pytest

from molgcn.report import drawings


def test_a_molecule_is_a_picture():
    assert drawings.draw("c1ccccc1O").startswith("data:image/svg+xml;base64,")


@pytest.mark.parametrize("smiles", ["", "not a molecule"])
def test_what_cannot_be_read_is_not_drawn(smiles):
    assert drawings.draw(smiles) is None


def test_without_the_libraries_of_x11():
    """The import fails on such a server, which is reported once, with the remedy."""
    program = (
        "import sys; sys.modules['rdkit.Chem.Draw'] = None; from molgcn.report.drawings import draw; "
        "print([draw(smiles) for smiles in ('CCO', 'CCO')])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[None, None]\n"
    assert done.stderr.count("apt install libxrender1") == 1
