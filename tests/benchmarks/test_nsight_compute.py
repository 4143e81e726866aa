"""Counters of kernels are read from what Nsight Compute prints."""

import csv
import io
import math

import pytest

from molgcn.errors import UserError
from molgcn_benchmark.nsight_compute import Metric, launches, profile

METRICS = {
    "time, us": Metric(("gpu__time_duration.sum",), 1e-3),
    "moved, MB": Metric(("dram__bytes_read.sum", "dram__bytes_write.sum"), 1e-6),
}

REPORT = """\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "rows_gather" - 0: 0%....50%....100% - 8 passes
a line of the program, with "quotes"
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"
"","","","","","","","","","","","byte","byte","ns"
"0","4711","python3.12","127.0.0.1","rows_gather","1","7","(256, 1, 1)","(1,056, 1, 1)","0","9.0","24,000,000","1,000,000.5","29,216"
"1","4711","python3.12","127.0.0.1","adam","1","7","(256, 1, 1)","(80, 1, 1)","0","9.0","n/a","512","2,048"
==WARNING== something at the end
"""


def test_metrics_are_summed_and_scaled():
    gather, adam = launches(REPORT, METRICS)
    assert (gather.kernel, adam.kernel) == ("rows_gather", "adam")
    assert gather.values == pytest.approx({"time, us": 29.216, "moved, MB": 25.0000005}, rel=1e-12)
    assert adam.values["time, us"] == pytest.approx(2.048, rel=1e-12)
    assert math.isnan(adam.values["moved, MB"])


@pytest.mark.parametrize("text", ["", "==WARNING== No kernels were profiled.\n", REPORT[: REPORT.index('"0"')]])
def test_a_report_without_kernels_is_refused(text):
    with pytest.raises(UserError, match="ncu measured no kernel"):
        launches(text, METRICS)


def test_a_version_without_a_metric_is_refused():
    with pytest.raises(UserError, match=r"this version of ncu has no dram__bytes_read\.sum\."):
        launches(REPORT.replace("dram__bytes_read", "dram__bytes_load"), METRICS)


def stand_in(folder, monkeypatch, script):
    """Put a shell script in place of ncu, with a report beside it."""
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (folder / "report").write_text(REPORT)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_program_is_run_under_ncu(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, 'd=$(dirname "$0"); echo "$@" > "$d/arguments"; cat "$d/report"')
    assert [launch.kernel for launch in profile(["program", "--option"], METRICS, "^rows_")] == ["rows_gather", "adam"]
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[-2:] == ["program", "--option"]
    assert {"--csv", "--page=raw", "--print-units=base", "--profile-from-start=off", "--clock-control=none"} < set(arguments)
    assert "--kernel-name=regex:^rows_" in arguments
    assert arguments[arguments.index("--metrics") + 1] == "dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum"


def test_what_a_failing_program_wrote_is_shown(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "echo ==ERROR== no driver; echo why >&2; exit 9")
    with pytest.raises(UserError, match=r"(?s)ncu ended with code 9.*no driver.*why"):
        profile(["program"], METRICS)


def test_cells_may_hold_commas_and_quotes():
    file = io.StringIO()
    table = csv.writer(file, quoting=csv.QUOTE_ALL)
    table.writerows([["ID", "Kernel Name", "m"], ["", "", "%"], [0, 'a "b", c', "1.5"]])
    (launch,) = launches(file.getvalue(), {"m": Metric(("m",))})
    assert (launch.kernel, launch.values) == ('a "b", c', {"m": 1.5})
