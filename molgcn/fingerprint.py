"""The command `python -m molgcn.fingerprint`: it computes learned fingerprints of a file of molecules, from one or several checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from molgcn.cli import run_command
from molgcn.config.run import BackendConfig
from molgcn.errors import counted
from molgcn.screening.config import ScreeningConfig

if TYPE_CHECKING:
    from molgcn.screening.fingerprint import Fingerprinted
    from molgcn.screening.run import Summary

log = logging.getLogger(__name__)

_FORMAT = ".9g"  # reads back as the same float32
Write = Callable[["Fingerprinted"], None]


@dataclass(frozen=True)
class FingerprintConfig(ScreeningConfig):
    """The keys of conf/fingerprint.yaml."""

    layer: int = 0
    backend: BackendConfig = field(default_factory=BackendConfig)


def main() -> None:
    run_command("fingerprint", fingerprint, FingerprintConfig, imports=["molgcn.screening.fingerprint"])


def fingerprint(config: FingerprintConfig) -> Summary:
    """Read the molecules and write their fingerprints, some rows at a time. The fingerprint of a single `molecule=` is printed.

    Raises:
        UserError: for every mistake in the configuration, the checkpoints or the file.
    """
    # Lightning takes seconds to import, and `--help` or a misspelt key does not need it
    from molgcn.screening.fingerprint import Fingerprints, fingerprint_records
    from molgcn.screening.output import ARRAYS
    from molgcn.screening.run import load_checked, open_screening

    ensemble, output = load_checked(config, config.backend, "fingerprints.csv", endings=ARRAYS)
    fingerprints = Fingerprints(ensemble, config.layer)
    with open_screening(config, output, ensemble, "fingerprinted") as screening:
        molecules = screening.molecules
        with _writer(config, output, molecules.columns, fingerprints.columns) as write:
            parts = fingerprint_records(fingerprints, molecules.records, molecules.kind, config.batch_size, config.num_workers)
            for part in screening.follow(parts):
                write(part)
            summary = screening.summary()
    if not config.prints:
        where = "" if output is None else f" in {output}"
        log.info("%s of %d numbers%s; %s", counted(summary.predicted, "fingerprint"), len(fingerprints.columns), where, summary.speed)
        summary.warn_of_failures("fingerprint", config.on_error, output)
    return summary


@contextmanager
def _writer(config: FingerprintConfig, output: Path | None, columns: list[str], names: list[str]) -> Iterator[Write]:
    from molgcn.screening.chunk import written_rows
    from molgcn.screening.output import ARRAYS, open_array
    from molgcn.screening.run import open_result

    if output is not None and output.suffix in ARRAYS:
        with open_array(output, len(names), "fingerprints") as write_rows:

            def write_numbers(part: Fingerprinted) -> None:
                kept = [place for place, _, _ in written_rows(part, config.on_error)]
                write_rows(part.values[kept], part.start + np.array(kept, np.int64))

            yield write_numbers
        return
    with open_result(config, output, columns, names) as write:
        yield lambda part: write(part, [[format(value, _FORMAT) for value in row] for row in part.values.tolist()])


if __name__ == "__main__":
    main()
