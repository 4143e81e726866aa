import math

import pytest

from molgcn_benchmark.paired import KEY, mean_standardised_difference, paired_difference, sheet


def test_difference_and_its_standard_error():
    mean, error = paired_difference([1.0, 2.0, 4.0], [2.0, 2.0, 2.0])
    assert mean == pytest.approx(1 / 3) and error == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2 / 3))
    assert math.isnan(paired_difference([1.0], [2.0])[1])


def row(program: str, seed: int, test: float, *, metric: str = "rmse", seconds: float = 2.0) -> dict:
    key = dict(zip(KEY, ("esol", "random", program, seed), strict=True))
    return key | {"metric": metric, "rising": int(metric != "rmse"), "test": test, "fit_seconds": seconds, "other_seconds": 1.0}


@pytest.mark.parametrize(("metric", "sign"), [("rmse", "+"), ("roc_auc", "-")])
def test_a_smaller_error_and_a_larger_area_are_better(metric, sign):
    rows = [row("us", seed, 0.5, metric=metric) for seed in (0, 1, 2)]
    rows += [row("them", seed, test, metric=metric, seconds=30.0) for seed, test in ((1, 0.7), (0, 0.6))]  # seed 2 has no partner
    (line,) = sheet(rows, "us", "them")[2:]
    assert (
        line
        == f"| esol | random | 2 | {metric} | 0.500 ± 0.000 | 0.650 ± 0.071 | {sign}0.150 | {sign}3.0 | 2.0 / 30.0 | 15.0 | 1.0 / 1.0 |"
    )


@pytest.mark.parametrize(
    ("column", "title", "cells"), [("fit_processor_seconds", "training", "4.0 / 10.0"), ("epoch_seconds", "epoch", "4.000 / 10.000")]
)
def test_the_time_may_be_that_of_another_column(column, title, cells):
    rows = [row(program, 0, 0.5) | {column: seconds} for program, seconds in (("us", 4.0), ("them", 10.0))]
    titles, _, line = sheet(rows, "us", "them", column)
    assert f"| {title}, s |" in titles and f"| {cells} | 2.5 |" in line


def test_sets_without_a_pair_have_no_line():
    assert len(sheet([row("us", 0, 0.5), row("them", 1, 0.6)], "us", "them")) == 2


def test_the_table_may_have_no_times():
    title, _, line = sheet([row("us", 0, 0.5), row("them", 0, 0.6)], "us", "them", None)
    assert title == "| data | split | seeds | metric | `us` | `them` | better by | in standard errors |"
    assert line == "| esol | random | 1 | rmse | 0.500 | 0.600 | +0.100 |  |"


def test_the_mean_standardised_difference_is_in_deviations_of_the_differences():
    errors = [row("us", seed, 0.5) for seed in (0, 1, 2)] + [row("them", seed, test) for seed, test in enumerate((0.6, 0.7, 0.8))]
    areas = [row("us", seed, test, metric="roc_auc") | {"data": "bbbp"} for seed, test in ((0, 0.7), (1, 0.9))]
    areas += [row("them", seed, 0.9, metric="roc_auc") | {"data": "bbbp"} for seed in (0, 1)]
    alone = [row(program, 0, test) | {"data": "bace"} for program, test in (("us", 0.1), ("them", 0.9))]  # no deviation
    expected = (0.2 / 0.1 - 0.1 / math.sqrt(0.02)) / 2
    assert mean_standardised_difference([*errors, *areas, *alone], "us", "them") == pytest.approx(expected)
    assert math.isnan(mean_standardised_difference(alone, "us", "them"))
