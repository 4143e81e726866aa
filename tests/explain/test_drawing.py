"""Pictures show contributions on the scale that is given, with whole halos."""

import io

import numpy as np
import pytest
from matplotlib.image import imread
from rdkit import Chem

from molgcn.explain.page import LOWERS, RAISES, colour_scale, draw_contributions

pytest.importorskip("rdkit.Chem.Draw.rdMolDraw2D", exc_type=ImportError)


def pixels(smiles, weights, scale):
    """Return the picture of a molecule, float [height, width, 3]."""
    picture = draw_contributions(Chem.MolFromSmiles(smiles), np.array(weights, float), scale, "png")
    return imread(io.BytesIO(picture))[..., :3]


def strongest(picture, colour):
    """Return how far the most coloured pixel is from white to a colour, of the pixels on that line."""
    towards = np.array(colour) - 1
    shares = ((picture - 1) @ towards) / (towards @ towards)
    near = np.abs(picture - 1 - shares[..., None] * towards).max(axis=2) < 0.02
    return shares[near].max()


@pytest.mark.parametrize("weight", [1.0, 0.5, -0.25, 3.0])
def test_colours_go_by_the_scale_and_not_by_the_molecule(weight):
    colour = RAISES if weight > 0 else LOWERS
    for smiles, weights in (("CC(C)C", [weight, 0, 0, 0]), ("CCCC", [weight, 0, 0, weight / 3])):
        assert strongest(pixels(smiles, weights, 1.0), colour) == pytest.approx(min(abs(weight), 1), abs=0.05)
        assert strongest(pixels(smiles, [20 * one for one in weights], 20.0), colour) == pytest.approx(min(abs(weight), 1), abs=0.05)


@pytest.mark.parametrize(("smiles", "place"), [("[Ne]", 0), ("CCCCCCCCCCCCCCCCCCCC", 0), ("CCCCCCCCCCCCCCCCCCCC", 19), ("CC(C)(C)C", 3)])
def test_a_halo_is_round_and_inside_the_picture(smiles, place):
    weights = np.zeros(Chem.MolFromSmiles(smiles).GetNumAtoms())
    weights[place] = 1
    coloured = pixels(smiles, weights, 1.0)
    halo = coloured[..., 2] - coloured[..., 0] > 0.03  # blue, which black bonds are not
    rows, columns = np.flatnonzero(halo.any(axis=1)), np.flatnonzero(halo.any(axis=0))
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), abs=6)
    for found, size in ((rows, halo.shape[0]), (columns, halo.shape[1])):
        assert found.min() > 0 and found.max() < size - 1


def test_without_contributions_a_molecule_is_drawn_without_colours():
    picture = pixels("CCO", [0, 0, 0], 0.0)
    assert (picture[0, 0] == 1).all() and picture.min() < 0.5


def test_the_scale_is_the_largest_or_that_of_all_but_one_in_a_hundred():
    assert colour_scale([]) == 0
    assert colour_scale([np.array([0.1, -3.0]), np.array([2.0])]) == 3
    assert colour_scale([np.array([50.0]), np.full(200, -1.0)]) == 1
