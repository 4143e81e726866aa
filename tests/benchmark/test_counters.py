"""benchmarks/counters.py reads the metrics of a profiler's report."""

import csv
import io
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "counters.py"


@pytest.fixture(scope="module")
def script():
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def report(script, kernels, **changes):
    """Return a report as `ncu --csv --page raw` prints it: lines of the program, names, units, and a row for each kernel."""
    metrics = sorted({metric for names in script.METRICS.values() for metric in names})
    file = io.StringIO()
    table = csv.writer(file, quoting=csv.QUOTE_ALL)
    table.writerow(["ID", "Kernel Name", *metrics])
    table.writerow(["", "", *("unit" for _ in metrics)])
    for number, kernel in enumerate(kernels):
        table.writerow([number, f"{kernel}(Parameters)", *(changes.get(metric, "1,000.5") for metric in metrics)])
    return f"==PROF== Connected\n{file.getvalue()}"


def test_metrics_are_summed_and_scaled(script):
    rows = script.counters(report(script, script.KERNELS, **{"gpu__time_duration.sum": "87,300"}))
    assert [row["time, us"] for row in rows] == pytest.approx([87.3] * 4)
    assert rows[0]["shared memory"] == pytest.approx(2 * 1000.5)
    assert rows[0]["instructions, millions"] == pytest.approx(1000.5e-6)


def test_other_kernels_are_refused(script):
    with pytest.raises(SystemExit, match=r"expected the kernels \['gcn_tile_forward', .*found \['gcn_tile_backward"):
        script.counters(report(script, script.KERNELS[3:]))
    with pytest.raises(SystemExit, match=r"(?s)found \[\].*No kernels were profiled"):
        script.counters("==WARNING== No kernels were profiled.\n")


def test_a_version_without_a_metric_is_refused(script):
    text = report(script, script.KERNELS).replace("launch__grid_size", "launch__grid")
    with pytest.raises(SystemExit, match="this version of ncu has no launch__grid_size"):
        script.counters(text)
