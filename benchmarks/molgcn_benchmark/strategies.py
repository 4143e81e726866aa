"""Compare the fused operator's strategies on a GPU with each other and with PyG."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from molgcn.config.run import ModelConfig
from molgcn.config.strategies import STRATEGIES
from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn.ops.gcn_tile_arguments import MAX_LAYERS
from molgcn.ops.gcn_tile_plan import TILE_MAX_WIDTH
from molgcn.ops.schedule import automatic
from molgcn_benchmark.batches import random_batch
from molgcn_benchmark.candidates import build, capture, fused_loss
from molgcn_benchmark.measure import interleaved, medians

PYG = ("pyg", "pyg_hoisted", "pyg_compiled")


@dataclass(frozen=True)
class Work:
    """One line of the table: forward and backward of a batch.

    Attributes:
        name: name of the molecules.
        batch_size: number of molecules, B.
        hidden_channels: width, H.
        num_layers: number of layers, L.
        options: other options of :class:`molgcn.nn.GCN`.
        pyg: whether PyG's variants are measured too.
    """

    name: str
    batch_size: int
    hidden_channels: int
    num_layers: int
    options: dict[str, Any] = field(default_factory=dict)
    pyg: bool = False


@dataclass(frozen=True)
class Row:
    """The times of one line.

    Attributes:
        work: the line.
        microseconds: times of forward and backward by strategy, as replays of CUDA graphs. PyG's variants run as their users run them;
            "pyg_captured" is a replay of the one with hoisted normalisation.
        auto: the strategy that "auto" takes.
    """

    work: Work
    microseconds: dict[str, float]
    auto: str


def strategies_for(work: Work) -> tuple[str, ...]:
    """Return the strategies that can do the work."""
    tile = work.options.get("norm") != "batch" and work.hidden_channels <= TILE_MAX_WIDTH and work.num_layers <= MAX_LAYERS
    return STRATEGIES[1:] if tile else ("layer",)


def measure(work: Work, molecules: PackedMolecules, device: torch.device, repeats: int) -> Row:
    """Time all strategies that can do the work, interleaved.

    Args:
        work: the network and the size of a batch.
        molecules: the set to draw the batch from.
        device: the GPU.
        repeats: the number of times that each strategy is timed.
    """
    widths = {"hidden_channels": work.hidden_channels, "num_layers": work.num_layers}
    options = ModelConfig(**{"norm": None, "residual": False, **widths, **work.options})
    batch = random_batch(molecules, work.batch_size, device, options)
    targets = torch.zeros(work.batch_size, 1, device=device)
    batch.targets = targets
    torch.manual_seed(0)
    model = GCN(molecules.num_features, work.hidden_channels, work.num_layers, 1, backend="pyg", **work.options).to(device)
    calls: dict[str, Callable[[], object]] = {}
    for strategy in strategies_for(work):
        fused = model.on_backend("fused", strategy).to(device)
        calls[strategy] = capture(_step(fused, fused_loss(fused), batch, targets))
    if work.pyg:
        for name in PYG:
            other = build(name, model, device)
            step = _step(other.module, other.loss, other.convert(batch), targets)
            calls[name] = other.prepare(step)
            if name == "pyg_hoisted":
                calls["pyg_captured"] = capture(step)
    times = {name: 1e3 * time for name, time in medians(interleaved(calls, device, repeats, warm_up=4)).items()}
    return Row(work, times, automatic(work.options.get("norm"), work.hidden_channels, work.num_layers))


def _step(module: torch.nn.Module, loss: Callable[[Any, Tensor], Tensor], given: Any, targets: Tensor) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad(set_to_none=True)
        loss(given, targets).backward()

    return step


def table(rows: list[Row]) -> list[str]:
    """Return the lines of a Markdown table of the rows, in microseconds."""
    names = [name for name in (*STRATEGIES[1:], *PYG, "pyg_captured") if any(name in row.microseconds for row in rows)]
    lines = [
        "| work | " + " | ".join(names) + " | auto |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for row in rows:
        work = row.work
        options = "".join(f", {name}={value}" for name, value in work.options.items())
        times = [f"{row.microseconds[name]:,.0f}" if name in row.microseconds else "" for name in names]
        lines.append(
            f"| {work.name}, B={work.batch_size}, H={work.hidden_channels}, L={work.num_layers}{options} | "
            + " | ".join(times)
            + f" | {row.auto} |"
        )
    return lines
