import time

import torch

from molgcn_benchmark.measure import count_kernels, interleaved, medians, milliseconds

CPU = torch.device("cpu")


def test_interleaved_calls_each_in_turn():
    order: list[str] = []
    times = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, CPU, repeats=3, warm_up=1)
    assert order == ["a", "b"] + ["a", "b"] * 3
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}
    assert medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}


def test_a_row_of_calls_gives_the_time_of_one():
    order: list[None] = []
    assert milliseconds(lambda: order.append(time.sleep(2e-3)), CPU, 5) >= 2
    assert len(order) == 5


def test_a_cpu_launches_no_kernels():
    assert count_kernels(lambda: torch.ones(3), CPU) is None
    assert milliseconds(lambda: torch.ones(3), CPU) >= 0
