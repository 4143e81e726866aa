"""Aggregation and layers on any graph: `python benchmarks/any_graph.py --output benchmarks/results/any_graph_MACHINE.md`.

On a machine without CUDA it compares the layers on the CPU.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean

import torch

from molgcn_benchmark.aggregation import alone, renumbered, strategies, vector_weights
from molgcn_benchmark.graph_layers import EDGE_LAYERS, LAYERS, eager_times, layer_times
from molgcn_benchmark.graph_training import NETWORKS, training_times
from molgcn_benchmark.graphs import graphs, mesh, random_graph
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import write_markdown

HEADER = """\
Microseconds, float32, medians of interleaved repeats; sums are checked against float64 first. The graphs are made at
random, in the sizes and degree laws of published benchmarks. "Captured" is the replay of a CUDA graph: without the
host's share.
"""
WIDTHS = (16, 64, 128)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def sums(repeats: int) -> Iterator[str]:
    """Yield the table of an unweighted sum over neighbours."""
    yield "| graph | width | aggregate | captured | cuSPARSE | captured | scatter | captured | times cuSPARSE | captured |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for case in graphs(DEVICE):
        for width in WIDTHS:
            found = alone(case, width, repeats)
            cells = [found[f"{name}{kind}"] for name in ("aggregate", "cuSPARSE", "scatter") for kind in ("", ", captured")]
            ratios = [found[f"aggregate{kind}"] / found[f"cuSPARSE{kind}"] for kind in ("", ", captured")]
            yield _row([case.title, width, *(f"{cell:.1f}" for cell in cells), *(f"{ratio:.2f}" for ratio in ratios)])


def vectors(repeats: int) -> Iterator[str]:
    """Yield the table of sums with a weight for every edge and channel, for N = 4,096 and E = 200,000.

    "Once" is the time of reading the weights, taken as half of a copy's. Ratios are those of captured calls. "Extra" is memory beyond
    inputs and results, in percent of these.
    """
    works = ("forward", "forward + backward")
    yield "| D | forward | captured | PyTorch | both | captured | PyTorch | once | forward / once | both / thrice | extra | PyTorch |"
    yield _row(["---:"] * 12)
    for width in (64, 256, 1024, 4096):
        found = vector_weights(width, repeats, DEVICE)
        cells = [found[name] for work in works for name in (f"aggregate {work}", f"aggregate {work}, captured", f"PyTorch {work}")]
        once = found["moving w once"]
        ratios = [found[f"aggregate {work}, captured"] / once / times for work, times in zip(works, (1, 3), strict=True)]
        extra = [found[f"{name} extra memory, %"] for name in ("aggregate", "PyTorch")]
        texts = (*(f"{ratio:.2f}" for ratio in ratios), *(f"{share:.1f} %" for share in extra))
        yield _row([width, *(f"{cell:.0f}" for cell in [*cells, once]), *texts])


def published(repeats: int) -> Iterator[str]:
    """Yield the table of strategies: forward and backward with scalar weights, captured.

    "GNNAdvisor" follows that system's parameter rule, with its atomic additions. fuseGNN lets its user choose between vertex and edge.
    """
    yield from _table(
        ["auto", "vertex", "neighbor_group", "neighbor_group, atomic", "GNNAdvisor", "edge"], strategies, graphs(DEVICE), repeats
    )


def order(repeats: int) -> Iterator[str]:
    """Yield the table of an unweighted sum, captured, with the nodes in their given order and in reverse Cuthill-McKee order."""
    yield from _table(["as they come", "renumbered"], renumbered, [*graphs(DEVICE)[1:4], mesh(1000, DEVICE)], repeats)


def layers(repeats: int) -> Iterator[str]:
    """Yield the table of layers: forward and backward of one layer, with gradients of input and parameters.

    PyG's numbers are those of its faster form: as written or, for GCN, with its graph cached. A captured form is listed only if it does
    not wait for the device. MB are the peak beyond the inputs, and the last column is the quotient of both.
    """
    yield _row(["layer", "graph", "width", "fused", "captured", "PyG", "captured", "times PyG", "captured", "MB", "PyG's MB", "of PyG's"])
    yield _row(["---", "---", *["---:"] * 10])
    cases, gained = graphs(DEVICE), {}
    for name in LAYERS:
        for case in cases:
            for width in WIDTHS:
                found = layer_times(name, case, width, repeats)
                gained[name, case.name, width] = found.pyg / found.fused, found.pyg / found.fused_captured
                replayed = "" if found.pyg_captured is None else f"{found.pyg_captured:.0f}"
                numbers = (f"{found.fused:.0f}", f"{found.fused_captured:.0f}", f"{found.pyg:.0f}", replayed)
                ratios = (f"{found.pyg / found.fused:.1f}", f"{found.pyg / found.fused_captured:.1f}")
                memory = (f"{found.fused_memory:.0f}", f"{found.pyg_memory:.0f}", f"{found.fused_memory / found.pyg_memory:.2f}")
                yield _row([name, case.title, width, *numbers, *ratios, *memory])
    yield ""
    yield _row(["layer", "geometric mean", "least", "captured: geometric mean", "least"])
    yield _row(["---", *["---:"] * 4])
    for name in LAYERS:
        eager, captured = zip(*(gain for (layer, *_), gain in gained.items() if layer == name), strict=True)
        yield _row([name, *(f"{number:.1f}" for gains in (eager, captured) for number in (geometric_mean(gains), min(gains)))])


def training(repeats: int) -> Iterator[str]:
    """Yield the table of training: milliseconds of a step of a plain PyG loop with Adam, and of the same loop with the import changed.

    Features and hidden layers have 128 channels, and there are 40 classes. PyG's GCN is also timed with its graph cached, and "times PyG"
    is relative to the faster one.
    """
    yield _row(["network", "layers", "fused", "PyG", "PyG, cached", "times PyG"])
    yield _row(["---", *["---:"] * 5])
    case = graphs(DEVICE)[2]
    for name in NETWORKS:
        for num_layers in (2, 3):
            found = {kind: time / 1e3 for kind, time in training_times(name, num_layers, case, repeats).items()}
            cells = ["" if time is None else f"{time:.2f}" for time in map(found.get, ("fused", "PyG", "PyG, cached"))]
            gained = min(time for kind, time in found.items() if kind != "fused") / found["fused"]
            yield _row([name, num_layers, *cells, f"{gained:.1f}"])


def on_a_cpu(repeats: int) -> Iterator[str]:
    """Yield the table of layers on a CPU with two threads: milliseconds of forward and backward on 1,000,000 random edges at width 64."""
    torch.set_num_threads(2)
    case = random_graph("random", 100_000, 1_000_000, 0.0, torch.device("cpu"))
    yield _row(["layer", "fused", "PyG", "times PyG"])
    yield _row(["---", *["---:"] * 3])
    for name in (*LAYERS, *EDGE_LAYERS):
        fused, pyg = (time / 1e3 for time in eager_times(name, case, 64, repeats))
        yield _row([name, f"{fused:.0f}", f"{pyg:.0f}", f"{pyg / fused:.1f}"])


SECTIONS: dict[str, Callable[[int], Iterator[str]]] = {
    "Sum over neighbours": sums,
    "Vector weights": vectors,
    "Strategies": published,
    "Renumbering": order,
    "Layers": layers,
    "Training": training,
}
ON_A_CPU: dict[str, Callable[[int], Iterator[str]]] = {"Layers on a CPU": on_a_cpu}


def _table(names: list[str], measure: Callable, cases: list, repeats: int) -> Iterator[str]:
    """Yield a Markdown table with a row for each graph and width, and a column for each call."""
    yield _row(["graph", "width", *names])
    yield _row(["---", *["---:"] * (len(names) + 1)])
    for case in cases:
        for width in WIDTHS:
            found = measure(case, width, repeats)
            yield _row([case.title, width, *(f"{found[name]:.1f}" for name in names)])


def _row(cells: list) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    sections = SECTIONS if DEVICE.type == "cuda" else ON_A_CPU
    parser.add_argument("--sections", nargs="*", default=list(sections), choices=list(sections))
    parser.add_argument("--output", type=Path, help="a Markdown file")
    arguments = parser.parse_args()
    facts, lines = machine(DEVICE), [HEADER]
    text = ""
    for name in arguments.sections:
        section = sections[name]
        lines += ["", f"## {name}", "", " ".join(str(section.__doc__).split()), "", *section(arguments.repeats)]
        text = write_markdown(arguments.output, "Aggregation and layers on any graph", facts, lines)
    print(text)


if __name__ == "__main__":
    main()
