"""One pass over a file of molecules: the files that it opens, the rows that fail, and the summary at the end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from molgcn.config.run import BackendConfig
from molgcn.data.formats import Molecules, Record, one_molecule, open_molecules
from molgcn.data.text import Lines
from molgcn.errors import UserError, counted, first_of, listed, row_of, shown
from molgcn.process.progress import progress_bar
from molgcn.screening.chunk import Chunk, header_of, shown_row, written_rows
from molgcn.screening.components import with_components
from molgcn.screening.config import OnError, ScreeningConfig, checkpoint_paths
from molgcn.screening.descriptors import records_with_descriptors
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.output import Table, TerminalTable, check_output, failure_list, open_table
from molgcn.screening.own_features import records_with_own_features
from molgcn.training.restore import find_checkpoints

log = logging.getLogger(__name__)


S = TypeVar("S", bound=Chunk)


@dataclass(frozen=True)
class Summary:
    """The number of rows that a pass read, the number of those with a result, and the time of the pass."""

    rows: int
    predicted: int
    seconds: float

    @property
    def speed(self) -> str:
        return f"{self.seconds:.1f} s, {self.rows / self.seconds:,.0f} molecules/s"

    def warn_of_failures(self, what: str, on_error: OnError, output: Path | None) -> None:
        """Log how many rows have no result, such as a "prediction", and that they are listed beside the output or were printed."""
        failed = counted(self.rows - self.predicted, "row")
        if self.rows == self.predicted:
            return
        if on_error == "nan":
            log.warning("%s without a %s; the column error says why", failed, what)
        else:
            listing = _listing(output)
            log.warning("%s left out%s", failed, "" if listing is None else f"; {listing} says why")


class Progress:
    """A count of molecules with a progress bar, which follows the bytes read from the file, since its number of rows is not known.

    Rows are read long before they are done, so that the bar shows as large a part of these bytes as rows of those that were read are done.
    """

    def __init__(self, text: Lines | None) -> None:
        size = None if text is None else text.size
        layout = "{percentage:3.0f}% |{bar}| {desc} [{elapsed}<{remaining}]" if size else "{desc} [{elapsed}]"
        self._text = text
        self._bar = progress_bar(total=size, bar_format=layout, leave=False)
        self._start = time.perf_counter()
        self.count, self._read = 0, 0

    def reading(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield records as they come, and count them."""
        for record in records:
            self._read += 1
            yield record

    def update(self, count: int) -> None:
        """Add molecules that are done."""
        self.count += count
        self._bar.set_description_str(f"{counted(self.count, 'molecule')}, {self.rate:,.0f}/s", refresh=False)
        if self._text is None or not self._text.size:
            self._bar.update(count)
        else:
            self._bar.update(self._text.position() * self.count // self._read - self._bar.n)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def close(self) -> None:
        self._bar.close()


class Screening:
    """A pass over an open file of molecules, made by :func:`open_screening`, with a table of the rows left out, if it has a file."""

    def __init__(self, molecules: Molecules, on_error: OnError, done: str, bar: Progress, failures: Table | None) -> None:
        self.molecules = molecules
        self._on_error, self._done, self._bar, self._failures = on_error, done, bar, failures
        self._results, self._first = 0, ""

    def follow(self, chunks: Iterable[S]) -> Iterator[S]:
        """Yield chunks as they come. Their errors stop the pass with a UserError, or are listed or kept, as on_error says."""
        for chunk in chunks:
            rows = chunk.start + len(chunk.records)
            for place, reason in sorted(chunk.errors.items()):
                self._fail(chunk.start + place, shown_row(chunk, place), reason, first_of(len(chunk.errors), rows, read=" read so far"))
            yield chunk
            self._results += len(chunk.records) - len(chunk.errors)
            self._bar.update(len(chunk.records))

    def summary(self) -> Summary:
        """Return the summary of the pass, or raise UserError where there were no rows or none had a result."""
        summary = Summary(self._bar.count, self._results, self._bar.seconds)
        if not summary.rows:
            raise UserError(f"{self.molecules.name} has no rows. Expected at least one molecule.")
        if not summary.predicted:
            raise UserError(f"None of the {counted(summary.rows, 'row')} of {self.molecules.name} can be {self._done}; {self._first}.")
        return summary

    def _fail(self, row: int, text: str, reason: str, others: str) -> None:
        if self._on_error == "raise":
            if self.molecules.text is None:
                raise UserError(f"molecule={shown(text)} cannot be {self._done}: {reason}. Correct it.")
            named = row_of(self.molecules.name, row, self.molecules.kind)
            raise UserError(
                f"{named}: '{shown(text)}' cannot be {self._done}: {reason}. {others} Correct it, leave such rows out with on_error=skip, "
                "or keep them without values with on_error=nan."
            )
        self._first = self._first or f"the first, row {row} ('{shown(text)}'): {reason}"
        if self._on_error == "nan":
            return
        if self._failures is None:
            print(f"Row {row} is left out: '{shown(text)}': {reason}", file=sys.stderr)
        else:
            self._failures.write([[str(row), text, reason]])


def load_checked(
    config: ScreeningConfig, backend: BackendConfig, name: str, *, endings: Sequence[str] = (), dropout_samples: int = 0, seed: int = 0
) -> tuple[Ensemble, Path | None]:
    """Load the models, and return them with the output, after a check that the input is given and the output can be written.

    The output is `name` where the configuration names none, and None where results go to standard output. `endings` are those of outputs
    that are no tables (:func:`check_output`). Dropout and seed are those of :meth:`Ensemble.load`.
    """
    checkpoints = [file for path in checkpoint_paths(config.ckpt) for file in find_checkpoints(path, models=config.models)]
    output, source = config.output_or(name), config.source
    if output is not None:
        check_output(output, [*checkpoints, *([source] if source else [])], listing=config.on_error == "skip", more=endings)
    return Ensemble.load(checkpoints, backend, config.device, dropout_samples, seed), output


@contextmanager
def open_screening(config: ScreeningConfig, output: Path | None, ensemble: Ensemble, done: str = "predicted") -> Iterator[Screening]:
    """Open the molecules that a configuration names, with a progress bar and, for on_error=skip, the list of rows left out.

    That list lies beside the output. Without an output such rows are printed on standard error. The models know the columns of SMILES and
    the descriptors that they were trained with, and `done` says what is done with molecules, for messages.

    Raises:
        UserError: when the molecules cannot be read, or do not fit the models.
    """
    components, descriptors = ensemble.inputs.components, ensemble.inputs.descriptors
    beside = [*components, *descriptors.columns]
    if config.molecule is not None and beside:
        raise UserError(
            f"molecule={shown(config.molecule)} is a SMILES alone, and the model takes the columns {listed(beside)}. Give a table that has "
            "them as input=<file.csv>."
        )
    named = [config.smiles] if isinstance(config.smiles, str) else config.smiles
    columns = named or [*ensemble.smiles_columns, *([] if components else ["smiles" if config.header else "0"])]
    opened = (
        open_molecules(config.source, config.format, columns, config.max_record_mb, header=config.header)
        if config.molecule is None
        else one_molecule(config.molecule)
    )
    with ExitStack() as stack:
        molecules = stack.enter_context(opened)
        given = None if config.descriptors is None else Path(config.descriptors).expanduser()
        molecules = with_components(molecules, named or components, components)
        records = records_with_descriptors(molecules, descriptors, given)
        files = {"atom": config.atom_features, "bond": config.bond_features}
        records = records_with_own_features(records, ensemble.inputs.own_features, files, molecules.name)
        bar = stack.enter_context(closing(Progress(molecules.text)))
        molecules = replace(molecules, records=bar.reading(records))
        failures = stack.enter_context(_failure_list(output if config.on_error == "skip" else None))
        yield Screening(molecules, config.on_error, done, bar, failures)


@contextmanager
def open_result(
    config: ScreeningConfig, output: Path | None, columns: Sequence[str], results: Sequence[str]
) -> Iterator[Callable[[Chunk, Sequence[Sequence[str]]], None]]:
    """Open the table for the results, the output file or, for a single `molecule=`, one on the terminal.

    Yield a function that writes the rows of a chunk. It takes the cells of the results of each row, whose columns `results` names, and
    writes them behind the cells of the input, whose columns are `columns`.
    """
    with nullcontext(TerminalTable()) if config.prints else open_table(output) as table:
        table.write([header_of(columns, results, config.on_error)])

        def write(chunk: Chunk, cells: Sequence[Sequence[str]]) -> None:
            table.write([*before, *cells[place], *behind] for place, before, behind in written_rows(chunk, config.on_error))

        yield write


@contextmanager
def _failure_list(output: Path | None) -> Iterator[Table | None]:
    listing = _listing(output)
    if listing is None:
        yield None
        return
    with open_table(listing) as table:
        table.write([["row", "molecule", "reason"]])
        yield table


def _listing(output: Path | None) -> Path | None:
    """Return the file beside the output that lists the rows left out; None where the output is a stream."""
    return None if output is None or (output.exists() and not output.is_file()) else failure_list(output)
