import pytest

from molgcn_benchmark.report import markdown
from molgcn_benchmark.side_by_side import measure, sheet

TINY = ["dataset=builtin", "dataset.subset=200", "model.hidden_channels=8", "model.num_layers=2", "trainer.accelerator=cpu"]


@pytest.mark.slow
def test_two_at_the_same_time():
    row = measure(TINY, processes=2, epochs=3, warm_up=1)
    assert (row["device"], row["processes"], row["epochs"]) == ("cpu", 2, 3)
    assert 0 < row["epoch_s"] <= row["slowest_s"] < 60
    assert row["molecules_per_second"] * row["slowest_s"] > 160  # at least as many as one process trains


def test_each_beside_one_alone_on_the_same_device():
    row = {"device": "cuda", "mps": "on", "epochs": 2, "epoch_s": 0.3, "slowest_s": 0.31}
    rows = [
        {**row, "processes": 4, "molecules_per_second": 30_000},
        {**row, "processes": 1, "molecules_per_second": 10_000},
        {**row, "processes": 4, "molecules_per_second": 11_000, "mps": "off"},
        {**row, "processes": 2, "molecules_per_second": 500, "device": "cpu", "mps": "off"},
    ]
    assert markdown(sheet(rows))[2:] == [
        "| off | 2 | 0.300 | 0.310 | 500 |  |",
        "| off | 4 | 0.300 | 0.310 | 11,000 | 1.10 |",
        "| on | 1 | 0.300 | 0.310 | 10,000 | 1.00 |",
        "| on | 4 | 0.300 | 0.310 | 30,000 | 3.00 |",
    ]
