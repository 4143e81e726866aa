"""The results of a --multirun side by side."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table


class SweepTable(Callback):
    """Prints one row a job when a multirun ends, best validation loss first, and writes them to `results.csv` in the sweep's folder."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Gathers the `result.json` of every job."""
        folder = Path(config.hydra.sweep.dir)
        results = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
        if not results:
            return
        results.sort(key=lambda result: math.inf if result["best_loss"] is None else result["best_loss"])
        tests = [key for key in results[0]["metrics"] if key.startswith("test/mae/")]
        units = dict(zip(results[0]["names"], results[0]["units"], strict=True))
        header = ["job", "overrides", "val/loss", *(_label(key, units) for key in tests), "molecules/s"]
        rows = [
            [
                Path(result["folder"]).name,
                " ".join(result["overrides"]),
                _number(result["best_loss"]),
                *(_number(result["metrics"].get(key)) for key in tests),
                f"{result['molecules_per_second']:.0f}",
            ]
            for result in results
        ]
        table = Table(title=f"{len(rows)} runs in {escape(str(folder))}", title_justify="left")
        for name in header:
            table.add_column(escape(name), justify="left" if name in ("job", "overrides") else "right")
        for row in rows:
            table.add_row(*(escape(cell) for cell in row))
        Console().print(table)
        with open(folder / "results.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])


def _label(key: str, units: dict[str, str]) -> str:
    target = key.removeprefix("test/mae/")
    return f"test MAE {target}" + (f" [{units[target]}]" if units.get(target) else "")


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.5g}"
