"""The command `python -m molgcn.explain`: it computes what atoms, bonds and descriptors contribute to a prediction."""

from __future__ import annotations

from molgcn.cli import run_command
from molgcn.explain.config import ExplainConfig


def main() -> None:
    run_command("explain", _explain, ExplainConfig, imports=["molgcn.explain.command"])


def _explain(config: ExplainConfig) -> None:
    from molgcn.explain.command import explain

    explain(config)


if __name__ == "__main__":
    main()
