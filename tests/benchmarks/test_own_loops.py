"""The loops are compared, and every row is in the table."""

from __future__ import annotations

import pytest
from compiler import needs_extension

from molgcn_benchmark.family import KEY, NETWORKS
from molgcn_benchmark.own_loops import CANDIDATES, measure, sheet
from molgcn_benchmark.results import Table

DATASET = {"name": "builtin", "targets": ["logp"], "features": "zinc", "subset": 60}


@needs_extension
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_loops_of_a_small_network(device, monkeypatch, one_thread):
    monkeypatch.setitem(NETWORKS, "small", ("gine", 2, 16, {"norm": "batch", "residual": True}))
    keys = [dict(zip(KEY, ("small", device, work, 8, "highest"), strict=True)) for work in ("forward", "forward_backward", "step")]
    table = Table(None, KEY)
    rows = list(measure(keys, CANDIDATES, DATASET, 1, table))
    assert [row["work"] for row in rows] == ["forward", "forward_backward", "step"]
    assert all(row[f"{name}_us"] > 0 for row in rows for name in CANDIDATES if name not in ("floor", "trainer"))
    assert [row.get("floor_us", 0) > 0 for row in rows] == [False, True, False]
    assert "trainer_us" not in rows[0]
    if device == "cuda":
        assert rows[2]["trainer_us"] > 0
    assert list(measure(keys, CANDIDATES, DATASET, 1, table)) == []  # nothing is measured twice
    lines = sheet(table.rows)
    assert len(lines) == 5 and lines[0].startswith(
        "| network | B | work | pyg, us | floor, us | plain, us | captured, us | captured, device, us"
    )
