"""Write the tables of README.md and docs/speed.md, and all plots, from the committed results.

Usage: `python benchmarks/readme_table.py [--check]`.
"""

import argparse
import csv
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from molgcn_benchmark import epochs, family, learning, loaders, published, steps
from molgcn_benchmark.plots import write_plots
from molgcn_benchmark.report import sheets, write_report
from molgcn_benchmark.results import Results, Row, Table, read_facts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
START, END = "<!-- made by benchmarks/readme_table.py -->", "<!-- end -->"
PLOTS = {"speedup_depth": "Times faster than PyG over depth", "loss_curves": "Losses of both backends over epochs and over wall time"}
FAMILY = (
    "The other networks on an H100, 2026-11-27: a step with AdamW, captured, on molecules of ZINC with bonds by code and without "
    "encodings, each row in one run with PyG. Where batches are small PyG waits for the processor, which was slow here: on other days it "
    "took as little as half. `benchmarks/results/family_cuda.md` has forward and backward alone and memory, `family_compiled.md` PyG "
    "compiled, `family_cpu.md` two CPU cores."
)
ATTENDING = (
    "Attention, gates and bond messages on an H200, {date}: forward and backward, captured, on molecules of ZINC with bonds by code, each "
    "row in one run with PyG as written and compiled for one static shape (`reduce-overhead`). MB are those of a step beyond the batch; "
    '"recomputed" is `backend.recompute=true`. `benchmarks/results/family_h200.md` has all columns.'
)
WORKS = {"forward": "inference", "forward_backward": "forward and backward", "step": "whole step with Adam"}
HEADER = ["| | PyG as written | fused | |", "|---|---:|---:|---:|"]
GRAPHS = (
    "On a GPU the fused operators run as replays of a CUDA graph, as in training. PyG runs as its users write it. "
    "Its compiled form with `reduce-overhead`, which needs one shape for all batches, is in `benchmarks/README.md`."
)
SIZE = {"num_layers": 28, "hidden_channels": 32, "norm": None}
SIZES = (4096, 1024, 128)
PARTS = {"steps": steps, "published": published, "loaders": loaders, "epochs": epochs, "learning": learning}


def ours(row: Row) -> float:
    """Return the milliseconds of the faster of our forms."""
    return min(row[name] for name in ("fused_ms", "fused_captured_ms") if row.get(name) is not None)


def is_headline(row: Row) -> bool:
    return all(row[name] == value for name, value in SIZE.items())


def line(what: str, pyg: float, fused: float) -> str:
    return f"| {what} | {time(pyg)} | {time(fused)} | {pyg / fused:.{0 if pyg / fused >= 20 else 1}f} times |"


def time(milliseconds: float) -> str:
    for unit, scale in (("s", 1e3), ("ms", 1.0)):
        if milliseconds >= scale:
            return f"{milliseconds / scale:.3g} {unit}" if milliseconds < 1e3 * scale else f"{milliseconds / scale:,.0f} {unit}"
    return f"{milliseconds * 1e3:.0f} us"


def step_lines(rows: list[Row]) -> Iterator[str]:
    """Yield lines for all kinds of work at the largest batch, and for the whole step at all batch sizes."""
    for size in SIZES:
        for work, name in WORKS.items():
            for row in rows:
                if (row["batch_size"], row["work"]) == (size, work) and is_headline(row) and "zinc" not in row["dataset"]:
                    if size == SIZES[0] or work == "step":
                        yield line(f"{name}, B = {size:,}", row["pyg_ms"], ours(row))
                    break


def epoch_lines(rows: list[Row]) -> Iterator[str]:
    """Yield lines for epochs through the Trainer, with each backend's own loader."""
    for size in SIZES:
        found = [row for row in rows if row["batch_size"] == size and is_headline(row)]
        fused = next((row for row in found if (row["backend"], row["loader"]) == ("fused", "packed")), None)
        pyg = next((row for row in found if (row["backend"], row["loader"]) == ("pyg", "pyg")), None)
        if fused and pyg:
            workers = f", {pyg['workers']} DataLoader workers" if pyg["workers"] else ""
            what = f"epoch of {fused['molecules']:,} molecules through the Trainer, B = {size:,}{workers}"
            yield line(what, pyg["epoch_ms"], fused["epoch_ms"])


def results() -> list[Results]:
    """Return the committed results, GPUs first."""
    found = []
    for folder in (RESULTS / "h100", RESULTS / "h200", RESULTS / "cpu"):
        facts = read_facts(folder / "results.json")
        if facts:
            found.append(Results(folder, facts))
            for name, part in PARTS.items():
                found[-1].table(name, part.KEY)
    return found


def lines_of(one: Results) -> list[str]:
    """Return the lines of the table for one machine."""
    return [*step_lines(one.tables["steps"].rows), *epoch_lines(one.tables["epochs"].rows)]


def family_lines() -> list[str]:
    """Return the rows of the other networks on a GPU."""
    rows = [row for row in Table(RESULTS / "family_cuda.csv", family.KEY).rows if row["work"] == "step"]
    return [line(_named(row), row["pyg_us"] / 1e3, row["fused_captured_us"] / 1e3) for row in rows]


def attending_lines() -> list[str]:
    """Return the rows of the networks with attention, gates or bond messages on a GPU, with times and memory."""
    lines = ["| | PyG as written | PyG compiled | fused | recomputed | MB, PyG | MB, fused | MB, recomputed |", "|---|" + "---:|" * 7]
    for row in Table(RESULTS / "family_h200.csv", family.KEY).rows:
        times = [time(us / 1e3) if (us := row.get(f"{name}_us")) else "" for name in ("pyg", "pyg_compiled", *family.CAPTURED)]
        memories = [f"{mb:,.0f}" if (mb := row.get(name)) else "" for name in ("pyg_mb", "fused_captured_mb", "fused_recomputed_mb")]
        lines.append(f"| {' | '.join([_named(row), *times, *memories])} |")
    return lines


def _named(row: Row) -> str:
    return f"{row['network']}, B = {row['batch_size']:,}"


def picture(one: Results, plot: str, folder: Path) -> str:
    return f"![{PLOTS[plot]}]({os.path.relpath(one.folder / plot, folder)}.png)"


def every_table() -> list[str]:
    """Return the lines of docs/speed.md: all rows of all machines."""
    lines: list[str] = []
    for one in results():
        facts = one.facts
        machine = facts.get("gpu") or facts["cpu"]
        versions = f"{facts['date']}, torch {facts['torch']}, PyG {facts['torch-geometric']}"
        lines += [f"**{machine}**, 28 layers, width 32, {versions}:", "", *HEADER, *lines_of(one), ""]
    lines += [*textwrap.wrap(GRAPHS, 120), "", *textwrap.wrap(FAMILY, 120), "", *HEADER, *family_lines(), ""]
    date = read_facts(RESULTS / "family_h200.md")["date"]
    lines += [*textwrap.wrap(ATTENDING.format(date=date), 120), "", *attending_lines(), ""]
    return [*lines, *(picture(results()[0], plot, ROOT / "docs") for plot in PLOTS)]


def headlines() -> list[str]:
    """Return the lines of the README: one table of forward and backward, and a plot."""
    lines = [
        "| H100, forward and backward | PyG as written | PyG compiled | fused, plain loop | fused, captured |",
        "|---|---:|---:|---:|---:|",
    ]
    with open(RESULTS / "front_page.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            times = [time(float(row[name])) for name in ("pyg_ms", "pyg_compiled_ms", "plain_ms", "captured_ms")]
            lines.append(f"| {row['network']}, {row['molecules']}, B = {int(row['batch_size']):,} | {' | '.join(times)} |")
    lines += ["", "| H200, forward and backward, ZINC | PyG as written | PyG compiled | fused, captured |", "|---|---:|---:|---:|"]
    for row in Table(RESULTS / "family_h200.csv", family.KEY).rows:
        if row.get("pyg_compiled_us"):
            times = [time(row[f"{name}_us"] / 1e3) for name in ("pyg", "pyg_compiled", "fused_captured")]
            lines.append(f"| {_named(row)} | {' | '.join(times)} |")
    return [*lines, "", picture(next(one for one in results() if one.folder.name == "h100"), "speedup_depth", ROOT)]


DOCUMENTS = {"README.md": headlines, "docs/speed.md": every_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 when a document differs")
    arguments = parser.parse_args()
    if not arguments.check:
        for one in results():
            write_report(one, sheets(one), write_plots(one))
            one.save()
    for name, made in DOCUMENTS.items():
        path = ROOT / name
        text = path.read_text()
        before, _, rest = text.partition(START)
        new = "\n".join([before + START, *made(), END + rest.partition(END)[2]])
        if not arguments.check:
            path.write_text(new)
        elif new != text:
            sys.exit(f"{path} differs from the results: run python benchmarks/readme_table.py")


if __name__ == "__main__":
    main()
