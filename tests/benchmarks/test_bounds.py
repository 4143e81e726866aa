"""What bounds the kernels of a step."""

import math

from molgcn_benchmark.bounds import METRICS, kernel_rows, sheet
from molgcn_benchmark.nsight_compute import Launch


def launch(kernel, time, values=None):
    """Return a launch of `time` us whose other metrics are zero but for `values`."""
    return Launch(kernel, {**dict.fromkeys(METRICS, 0.0), "time, us": time, **(values or {})})


def test_launches_of_a_kernel_are_one_row_and_percentages_are_weighted_by_time():
    step = [
        launch("rows_gather", 10.0, {"device memory": 90.0, "L2": 30.0, "device memory, MB": 5.0, "occupancy": 50.0}),
        launch("adam", 20.0, {"issue slots": 20.0}),
        launch("rows_gather", 30.0, {"device memory": 50.0, "L2": 30.0, "device memory, MB": 35.0, "occupancy": 70.0}),
    ]
    gather, adam = kernel_rows(step)
    assert (gather["kernel"], gather["launches"], gather["us"], gather["share, %"]) == ("rows_gather", 2, 40.0, 66.7)
    assert gather["GB/s"] == 1000  # 40 MB in 40 us
    assert (gather["device memory, %"], gather["L2, %"], gather["occupancy, %"]) == (60.0, 30.0, 65.0)
    assert (gather["bound by"], adam["bound by"]) == ("device memory 60 %", "issue slots 20 %")


def test_the_commonest_wait_is_named_with_its_share_of_the_warps_time():
    # per instruction: one cycle to issue it, 6 for memory, 3 for shared memory
    (row,) = kernel_rows([launch("k", 1.0, {"stall: global or local memory": 6.0, "stall: shared memory": 3.0})])
    assert row["waits for"] == "global or local memory 60 %"
    assert row["waits for shared memory, %"] == 30.0


def test_what_ncu_could_not_measure_is_left_out():
    lost = launch("k", 10.0, {"issue slots": math.nan})
    (row,) = kernel_rows([lost, launch("k", 5.0, {"issue slots": 40.0})])
    assert (row["us"], row["issue slots, %"]) == (15.0, 40.0)
    (row,) = kernel_rows([lost])
    assert row["issue slots, %"] == 0.0


def test_the_sheet_has_a_table_for_each_step_without_kernels_of_less_than_a_percent():
    rows = kernel_rows([launch("rows_gather", 995.0, {"L2": 77.0}), launch("rows_prepare", 5.0)])
    lines = sheet([{"network": name, "batch_size": 4096, "precision": "highest", **row} for name in ("GIN", "SAGE") for row in rows])
    assert [line for line in lines if line.startswith("##")] == [
        f"## {name}, B = 4,096, precision highest: 2 launches, 1,000 us" for name in ("GIN", "SAGE")
    ]
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) == 6  # titles, rule and one kernel, twice
    assert len({line.count("|") for line in tables}) == 1
    assert tables[2].startswith("| rows_gather | 1 | 995 | 100 | 0 | 0 | 77 |")
    assert "| L2 77 % |" in tables[2]


def test_there_is_no_sheet_without_rows():
    assert sheet([]) == []
