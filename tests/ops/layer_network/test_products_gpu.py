"""Matrix products of the layer network on a GPU agree with float64. `pytest -m gpu`."""

import pytest
import torch
from products_backward_cases import worst_backward
from products_cases import call_of, worst_forward

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison")]

WIDTHS = [(11, 32), (21, 64), (28, 70), (80, 80), (11, 124), (300, 172), (11, 300), (208, 304), (64, 512)]


def check(call):
    """Check all products. Of some rows relu and dropout leave a third, and relative to so few terms errors are larger."""
    with torch.no_grad():
        assert worst_forward(call) < 2e-7
        errors = worst_backward(call)
    assert errors["rows"] < 2e-7
    assert errors["masked"] < 3e-7
    assert errors["weights"] < 2e-6
    assert errors["biases"] < 1e-6
    assert errors["norms"] < 1e-6


@pytest.mark.parametrize("real", [0, 1, 17, 740, 5_000, 20_000])
@pytest.mark.parametrize(("in_channels", "hidden"), WIDTHS)
def test_products_are_as_precise_as_float32(in_channels, hidden, real):
    bonds = {"conv": "gine", "edge_channels": 5} if real % 2 else {}
    check(call_of(in_channels, hidden, real, padding=real // 8, device="cuda", **bonds))


@pytest.mark.parametrize("real", [17, 740, 20_000])
@pytest.mark.parametrize(
    ("in_channels", "hidden"), [(11, 32), (28, 70), (100, 100), (128, 128), (144, 144), (300, 172), (11, 300), (512, 600)]
)
@pytest.mark.parametrize("options", [{"norm": "batch"}, {"residual": True}, {"norm": "batch", "project": True, "feed_forward": True}])
def test_products_beside_each_other(options, in_channels, hidden, real):
    # Where the widths are equal, rows of the feed-forward block have the seed of its weight, and all terms of some sums are positive.
    sage = {"conv": "sage", "mlp_norm": False, "feed_forward": False, **options}
    check(call_of(in_channels, hidden, real, padding=real // 8, device="cuda", **sage))


@pytest.mark.parametrize("real", [17, 740, 20_000])
@pytest.mark.parametrize(("in_channels", "hidden"), WIDTHS)
def test_products_of_rows_with_zeros(in_channels, hidden, real):
    check(call_of(in_channels, hidden, real, padding=real // 8, device="cuda", residual=True))


@pytest.mark.parametrize("options", [{}, {"conv": "sage", "norm": "batch", "mlp_norm": False}], ids=["gin", "sage"])
@pytest.mark.parametrize(("precision", "bound"), [("tf32", 3e-4), ("bf16", 3e-3)])
def test_lower_precision_is_what_was_asked_for(precision, bound, options):
    with torch.no_grad():
        assert worst_forward(call_of(11, 80, 740, device="cuda", precision=precision, **options)) < bound
        assert worst_backward(call_of(11, 80, 740, device="cuda", precision=precision, **options))["weights"] < 3 * bound
