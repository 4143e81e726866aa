"""The command `python -m molgcn.evaluate`: it measures a checkpoint on its run's own data and split, or on another file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from molgcn.cli import run_command
from molgcn.data.config import NAMES
from molgcn.evaluation.config import EvaluateConfig

if TYPE_CHECKING:
    from molgcn.evaluation.run import Evaluation


def main() -> None:
    """Run `python -m molgcn.evaluate`."""
    sys.argv[1:] = [spell_out_dataset(argument) for argument in sys.argv[1:]]
    run_command("evaluate", evaluate, EvaluateConfig, imports=["molgcn.training.restore"])


def spell_out_dataset(argument: str) -> str:
    """Return `dataset=qm9` as `dataset.name=qm9`, `dataset=<file>` as `dataset.path=<file>`, and other arguments unchanged."""
    key, _, value = argument.partition("=")
    if key != "dataset" or not value:
        return argument
    return f"dataset.{'name' if value in NAMES else 'path'}={value}"


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Predict, measure, print the results table, and write the report.

    The output folder gets `report.html`, `metrics.json`, one `predictions_<part>.csv` per part, and a picture.

    Raises:
        UserError: For every mistake in the configuration, the checkpoint or the data.
    """
    from molgcn.evaluation.run import run  # takes seconds to import, and `--help` or a misspelt key does not need it

    return run(config)


if __name__ == "__main__":
    main()
