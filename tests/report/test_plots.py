import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from molgcn.report.plots import loss_curves, plot_learning_curve, plot_parity


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as a missing glyph, a layout that does not fit or a mean of nothing
        yield


def pixels(path):
    """Return a picture [height, width, 3], after checking that it has a sensible size, contents and white margins."""
    image = imread(path)[..., :3]
    height, width = image.shape[:2]
    assert 300 <= height <= 4000 and 300 <= width <= 4000
    assert (image < 0.9).any(axis=2).mean() > 0.002
    for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
        assert (edge > 0.99).all()  # nothing is cut off
    return image


def count(image, color):
    """Return the number of pixels of about this color."""
    return int((np.abs(image - np.array(color)) < 0.12).all(axis=2).sum())


BLUE, ORANGE = (0x1F / 255, 0x6F / 255, 0xB4 / 255), (0xD1 / 255, 0x63 / 255, 0x2A / 255)


def curve(tmp_path, epochs, rows_per_epoch=1, val=True):
    rows = []
    for epoch in range(epochs):
        for i in range(rows_per_epoch):
            rows.append({"epoch": epoch, "step": (epoch * rows_per_epoch + i + 1) * 50, "train/loss": 1 / (epoch + 1 + i / rows_per_epoch)})
        rows.append({"epoch": epoch, "step": (epoch + 1) * rows_per_epoch * 50, "val/loss": 1.1 / (epoch + 1) if val else None})
    pd.DataFrame(rows).to_csv(tmp_path / "metrics.csv", index=False)
    plot_learning_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "l1")
    return pixels(tmp_path / "curve.png")


@pytest.mark.parametrize(("epochs", "rows"), [(1, 1), (3, 1), (50, 20)])
def test_learning_curve_shows_both_losses(tmp_path, epochs, rows):
    image = curve(tmp_path, epochs, rows)
    assert count(image, BLUE) > 50
    assert count(image, ORANGE) > 50


def test_learning_curve_marks_the_best_value_of_the_monitor(tmp_path):
    """The loss is the lowest in the first epoch, and the metric is the best in the last."""
    rows = [{"epoch": epoch, "step": 50 * epoch + 50, "train/loss": 1, "val/loss": 1 + epoch, "val/r2": epoch / 9} for epoch in range(9)]
    pd.DataFrame(rows).to_csv(tmp_path / "metrics.csv", index=False)
    marked = []
    for maximize in (False, True):
        plot_learning_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "l1", "val/r2", maximize)
        image = pixels(tmp_path / "curve.png")
        blue = (np.abs(image - np.array(BLUE)) < 0.12).all(axis=2)
        half = image.shape[1] // 4
        marked.append((int(blue[:, :half].sum()), int(blue[:, -half:].sum())))
    (left, right), (left_of_best, right_of_best) = marked
    assert left > left_of_best and right < right_of_best


def test_learning_curve_says_which_loss_it_is_of(tmp_path):
    curve(tmp_path, 3)
    for label in ("l1 loss", "mse loss"):
        plot_learning_curve(tmp_path / "metrics.csv", tmp_path / f"{label}.png", label)
    assert not np.array_equal(imread(tmp_path / "l1 loss.png"), imread(tmp_path / "mse loss.png"))


def test_learning_curve_without_validation(tmp_path):
    image = curve(tmp_path, 5, val=False)
    assert count(image, ORANGE) > 5 * count(image, BLUE)


def test_the_training_curve_is_the_mean_of_each_epoch():
    """Rows for 50 steps and for the last one of an epoch are weighted by their steps."""
    rows = [(0, 50, 1.0), (0, 51, 11.0), (1, 101, 0.5), (1, 102, 0.5 + 51)]
    table = pd.DataFrame(rows, columns=["epoch", "step", "train/loss"]).assign(**{"val/loss": [np.nan, 2.0, np.nan, 3.0]})
    curves = loss_curves(table)
    np.testing.assert_allclose(curves["train/loss"], [(51, 61 / 51), (102, 1.5)], rtol=1e-12)
    np.testing.assert_array_equal(curves["val/loss"], [(51, 2.0), (102, 3.0)])


@pytest.mark.parametrize("losses", [[np.nan, np.nan], [0.5, np.inf], [0.0, 0.0], []])
def test_learning_curve_of_runs_that_went_wrong(tmp_path, losses):
    table = pd.DataFrame({"epoch": range(len(losses)), "step": range(len(losses)), "train/loss": losses, "val/loss": losses})
    table.to_csv(tmp_path / "metrics.csv", index=False)
    plot_learning_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "mse")
    pixels(tmp_path / "curve.png")


def points(tmp_path, targets, predictions, names=("y",), units=("eV",)):
    plot_parity(np.asarray(targets, np.float32), np.asarray(predictions, np.float32), names, units, tmp_path / "parity.png")
    return pixels(tmp_path / "parity.png")


def test_parity_points_lie_where_the_numbers_are(tmp_path):
    """Perfect predictions are on the diagonal; predictions that are too high are above it."""
    true = np.random.default_rng(0).uniform(0, 1, (300, 1))

    def height_over_diagonal(predicted):
        image = points(tmp_path, true, predicted)
        rows, columns = np.nonzero((image[..., 2] - image[..., 0]) > 0.25)  # blue
        return columns.mean() / image.shape[1] - (1 - rows.mean() / image.shape[0])

    assert height_over_diagonal(true + 0.6 * (1 - true)) < height_over_diagonal(true) - 0.05


@pytest.mark.parametrize("number", [1, 5, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 9))])
def test_parity_has_a_panel_a_target(tmp_path, number):
    values = np.random.default_rng(0).normal(size=(40, number))
    image = points(tmp_path, values, values + 0.1, [f"target{i}" for i in range(number)], ["eV"] * number)
    assert image.shape[1] > 400 * min(number, 4)
    assert image.shape[0] > 400 * -(-number // 4)


def test_parity_of_many_molecules_shows_density(tmp_path):
    values = np.random.default_rng(0).normal(size=(5000, 1))
    image = points(tmp_path, values, values + np.random.default_rng(1).normal(0, 0.1, size=(5000, 1)))
    assert count(image, (0.99, 0.9, 0.14)) > 20  # the bright end of the colour map


@pytest.mark.parametrize(
    ("targets", "predictions"),
    [
        ([[1.0]], [[2.0]]),
        ([[1.0], [1.0]], [[1.0], [1.0]]),
        ([[np.nan], [1.0]], [[2.0], [3.0]]),
        ([[np.nan]], [[2.0]]),
        ([[1.0], [2.0]], [[np.nan], [np.inf]]),
        ([[1.0], [2.0]], [[1.5], [np.inf]]),
        ([[1e30], [2e30]], [[1e30], [3e30]]),
    ],
)
def test_parity_of_few_missing_and_infinite_values(tmp_path, targets, predictions):
    points(tmp_path, targets, predictions)


def test_names_from_a_file_are_text_and_not_formulas(tmp_path):
    values = np.zeros((3, 2))
    points(tmp_path, values, values, ["$\\frac{", "price_$"], ["$", "cal/(mol K)"])
