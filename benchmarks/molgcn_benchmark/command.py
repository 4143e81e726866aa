"""`python -m molgcn_benchmark`: compare the backends on this machine."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from molgcn.cli import run_app


def main() -> None:
    """Run `python -m molgcn_benchmark`."""
    run_app("benchmark", _job)


def _job(config: Any) -> None:
    from molgcn_benchmark.compare import compare
    from molgcn_benchmark.config import BenchmarkConfig
    from molgcn.config.run import parse

    compare(parse(BenchmarkConfig, OmegaConf.to_container(config, resolve=True)))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
