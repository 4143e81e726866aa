"""How much of a network and of trees a prediction takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from molgcn.blending.shares import EQUAL, OF_CLASSES, OF_NUMBERS, mix_of_classes, share_of_classes, share_of_numbers

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_with_many_labels_it_is_that_with_the_least_error(share):
    network, trees = RNG.normal(size=(2, 100_000))
    assert share_of_numbers(network, trees, share * network + (1 - share) * trees) == pytest.approx(share, abs=1e-3)
    one, other = RNG.dirichlet([1, 1, 1], (2, 20_000))
    labels = (RNG.random((20_000, 1)) > mix_of_classes(one, other, share).cumsum(axis=1)).sum(axis=1).clip(max=2)
    assert share_of_classes(one, other, labels.astype(float)) == pytest.approx(share, abs=0.05)


def test_few_labels_move_it_little():
    """As many labels as EQUAL move it half of the way, and an only class or no label at all does not."""
    perfect, wrong = np.arange(EQUAL) % 2.0, 1 - np.arange(EQUAL) % 2.0
    assert share_of_numbers(perfect, wrong, perfect) == pytest.approx((1 + OF_NUMBERS) / 2)
    assert share_of_numbers(wrong[:5], perfect[:5], perfect[:5]) == pytest.approx(OF_NUMBERS * EQUAL / (5 + EQUAL))
    both = [np.stack([1 - one, one], axis=1) for one in (perfect, wrong)]
    assert share_of_classes(*both, perfect) == pytest.approx((1 + OF_CLASSES) / 2)
    assert share_of_classes(*both, np.where(perfect == 1, 1, math.nan)) == OF_CLASSES
    assert share_of_numbers(perfect, wrong, np.full(EQUAL, math.nan)) == OF_NUMBERS
