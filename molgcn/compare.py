"""The command `python -m molgcn.compare`: it says which of several finished runs is better, and how sure that is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from molgcn.cli import run_command
from molgcn.errors import UserError, require
from molgcn.screening.config import checkpoint_paths

if TYPE_CHECKING:
    from molgcn.evaluation.side_by_side import Comparison


@dataclass(frozen=True)
class CompareConfig:
    """The keys of conf/compare.yaml."""

    runs: str | list[str] | None = None
    metric: str | None = None
    output: str | None = None
    bootstrap: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.bootstrap >= 0, "bootstrap", self.bootstrap, "a number of resamples, 0 for no intervals over molecules")
        require(0 <= self.seed < 2**32, "seed", self.seed, "a whole number from 0 to 4294967295")


def main() -> None:
    """Run `python -m molgcn.compare`."""
    sys.argv[1:] = with_runs(sys.argv[1:])
    run_command("compare", compare, CompareConfig, imports=["molgcn.evaluation.side_by_side"])


def with_runs(arguments: list[str]) -> list[str]:
    """Return the arguments with the folders among them as the key `runs`."""
    folders = [argument for argument in arguments if "=" not in argument and not argument.startswith("-")]
    others = [argument for argument in arguments if argument not in folders]
    return [*others, f"runs=[{','.join(folders)}]"] if folders else others


def compare(config: CompareConfig) -> Comparison:
    """Print how runs differ in a metric of their test molecules, and with `output` write tables and a picture.

    Raises:
        UserError: If fewer than two runs are named, one is not complete, or they were not tested on the same molecules.
    """
    from molgcn.evaluation.side_by_side import compare_runs, print_comparison, write_comparison  # takes seconds to import

    folders = list(dict.fromkeys(Path(run).expanduser() for run in checkpoint_paths(config.runs))) if config.runs else []
    if len(folders) < 2:
        raise UserError("Name at least two different runs to compare: python -m molgcn.compare runs/a runs/b.")
    comparison = compare_runs(folders, config.metric, config.bootstrap, config.seed)
    print_comparison(comparison)
    if config.output is not None:
        write_comparison(comparison, Path(config.output).expanduser())
    return comparison


if __name__ == "__main__":
    main()
