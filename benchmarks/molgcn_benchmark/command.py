"""The command line of `python -m molgcn.benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from molgcn.cli import run_app
from molgcn.resources import resource

CONF = Path(__file__).parents[1] / "conf"


def main() -> None:
    """Run `python -m molgcn.benchmark`."""
    run_app("benchmark", _job, folders=[CONF, resource("conf")])


def _job(config: Any) -> None:
    from molgcn.config.run import parse
    from molgcn_benchmark.compare import compare
    from molgcn_benchmark.config import BenchmarkConfig

    compare(parse(BenchmarkConfig, OmegaConf.to_container(config, resolve=True)))  # type: ignore[arg-type]
