"""The README's headline table and plots, from the committed results: `python benchmarks/readme_table.py [--check]`."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from molgcn.benchmark import epochs, learning, loaders, published, steps
from molgcn.benchmark.plots import write_plots
from molgcn.benchmark.report import sheets, write_report
from molgcn.benchmark.results import Results, Row, read_facts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
START, END = "<!-- made by benchmarks/readme_table.py -->", "<!-- end -->"
PLOTS = {"speedup_depth": "Times faster than PyG over depth", "loss_curves": "Losses of both backends over epochs and over wall time"}
WORKS = {"forward": "inference", "forward_backward": "forward and backward", "step": "whole step with Adam"}
HEADER = ["| | PyG as written | fused | |", "|---|---:|---:|---:|"]
GRAPHS = (
    "On a GPU kernels and steps of fused are replays of a CUDA graph, as in training; PyG runs as its users write it. Its compiled form "
    "with `reduce-overhead`, which needs one shape for all batches, is in `benchmarks/README.md`."
)
SIZE = {"num_layers": 28, "hidden_channels": 32, "norm": None}
SIZES = (4096, 1024, 128)
PARTS = {"steps": steps, "published": published, "loaders": loaders, "epochs": epochs, "learning": learning}


def ours(row: Row) -> float:
    """Milliseconds of the faster of our forms."""
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
    """The kernels at the largest batch, and the whole step at 128."""
    for size in SIZES:
        for work, name in WORKS.items():
            for row in rows:
                if (row["batch_size"], row["work"]) == (size, work) and is_headline(row) and "zinc" not in row["dataset"]:
                    if size == SIZES[0] or work == "step":
                        yield line(f"{name}, B = {size:,}", row["pyg_ms"], ours(row))
                    break


def epoch_lines(rows: list[Row]) -> Iterator[str]:
    """Epochs through the Trainer, each backend with its own loader."""
    for size in SIZES:
        found = [row for row in rows if row["batch_size"] == size and is_headline(row)]
        fused = next((row for row in found if (row["backend"], row["loader"]) == ("fused", "packed")), None)
        pyg = next((row for row in found if (row["backend"], row["loader"]) == ("pyg", "pyg")), None)
        if fused and pyg:
            workers = f", {pyg['workers']} DataLoader workers" if pyg["workers"] else ""
            what = f"epoch of {fused['molecules']:,} molecules through the Trainer, B = {size:,}{workers}"
            yield line(what, pyg["epoch_ms"], fused["epoch_ms"])


def results() -> list[Results]:
    """The committed folders, GPUs first."""
    found = []
    for folder in (RESULTS / "h100", RESULTS / "h200", RESULTS / "cpu"):
        facts = read_facts(folder / "results.json")
        if facts:
            found.append(Results(folder, facts))
            for name, part in PARTS.items():
                found[-1].table(name, part.KEY)
    return found


def block() -> str:
    """The text between the README's marks."""
    lines: list[str] = []
    for one in results():
        facts, tables = one.facts, one.tables
        machine = facts.get("gpu") or facts["cpu"]
        lines += [f"**{machine}**, 28 layers, width 32, {facts['date']}, torch {facts['torch']}, PyG {facts['torch-geometric']}:", ""]
        lines += [*HEADER, *step_lines(tables["steps"].rows), *epoch_lines(tables["epochs"].rows), ""]
    lines += [GRAPHS, ""]
    for one in results()[:1]:
        for plot, text in PLOTS.items():
            lines.append(f"![{text}]({(one.folder / plot).relative_to(ROOT)}.png)")
    return "\n".join([START, *lines, END])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 when the README differs")
    arguments = parser.parse_args()
    path = ROOT / "README.md"
    text = path.read_text()
    before, _, rest = text.partition(START)
    if not arguments.check:
        for one in results():
            write_report(one, sheets(one), write_plots(one))
            one.save()
    new = before + block() + rest.partition(END)[2]
    if arguments.check:
        sys.exit(f"{path} differs from the results: run python benchmarks/readme_table.py" if new != text else None)
    path.write_text(new)


if __name__ == "__main__":
    main()
