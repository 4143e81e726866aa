import pytest
import torch

from molgcn.ops.philox import keep_mask, philox

# Known answers that Random123 publishes (kat_vectors, philox4x32 10).
KNOWN = [
    (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (0xFFFFFFFF, 0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    word = torch.tensor([counter])
    assert tuple(int(out) for out in philox((word, word, word, word), (key, key))) == expected


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_keep_mask_keeps_the_right_share(rate):
    kept = keep_mask(torch.tensor([-5]), 3, 4000, 50, rate).double()
    spread = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert abs(kept.mean().item() - (1 - rate)) < 5 * spread
    assert (kept.mean(0) - (1 - rate)).abs().max() < 5 * spread * 50**0.5


def test_layers_and_seeds_draw_differently():
    masks = [keep_mask(torch.tensor([seed]), layer, 50, 8, 0.5) for seed in (1, 2, 2**40 + 1) for layer in (0, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])
