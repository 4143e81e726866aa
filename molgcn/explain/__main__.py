"""The command `python -m molgcn.explain`: it computes what atoms, bonds and descriptors contribute to a prediction."""

from __future__ import annotations

from typing import Any

from molgcn.cli import run_app
from molgcn.explain.config import ExplainConfig
from molgcn.screening.config import parse_screening


def main() -> None:
    """Run `python -m molgcn.explain`."""
    run_app("explain", _job, imports=["molgcn.explain.command"])


def _job(config: Any) -> None:
    from molgcn.explain.command import explain

    explain(parse_screening(ExplainConfig, config))


if __name__ == "__main__":
    main()
