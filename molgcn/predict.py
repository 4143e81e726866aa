"""`python -m molgcn.predict`: predictions for a file of SMILES from a checkpoint."""

from __future__ import annotations

import csv
import gzip
import logging
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from omegaconf import OmegaConf

from molgcn.cli import run_app
from molgcn.config import BackendConfig, parse
from molgcn.errors import UserError

log = logging.getLogger(__name__)

_LISTS = (".smi", ".smiles", ".txt")
_TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class MoleculeFileConfig:
    """conf/predict.yaml, dataset: the molecules to predict."""

    path: str | None = None
    smiles: str = "smiles"
    on_error: Literal["raise", "skip"] = "raise"
    batch_size: int = 1024
    num_workers: int | None = None


@dataclass(frozen=True)
class PredictConfig:
    """conf/predict.yaml."""

    ckpt_path: str | None = None
    dataset: MoleculeFileConfig = field(default_factory=MoleculeFileConfig)
    output: str = "predictions.csv"
    backend: BackendConfig = field(default_factory=BackendConfig)
    device: str = "auto"


@dataclass(frozen=True)
class Predictions:
    """What :func:`predict_smiles` returns, one entry a row of the input.

    Attributes:
        smiles: M strings, as given.
        values: float32 [M, T] in the targets' units; NaN for rows that are not molecules.
        errors: M strings, "" or why the row has no prediction.
        names: T target names.
        units: T units ("" = none).
    """

    smiles: Sequence[str]
    values: np.ndarray
    errors: Sequence[str]
    names: tuple[str, ...]
    units: tuple[str, ...]


def main() -> None:
    """Entry point of `python -m molgcn.predict`."""
    run_app("predict", _job)


def _job(config: Any) -> None:
    predict(parse(PredictConfig, OmegaConf.to_container(config, resolve=True)))  # type: ignore[arg-type]


def predict(config: PredictConfig) -> Predictions:
    """Reads the file of SMILES, predicts and writes `config.output`.

    Raises:
        UserError: for every mistake in the configuration, the checkpoint or the file.
    """
    # Lightning takes seconds to import: not before `--help` or a misspelt key
    from molgcn.training.restore import find_checkpoint, load_regressor

    checkpoint = find_checkpoint(config.ckpt_path)
    if config.dataset.path is None:
        raise UserError("No molecules are named. Give dataset.path=<file.csv> dataset.smiles=<column>, or a .smi file.")
    source, output = Path(config.dataset.path).expanduser(), Path(config.output).expanduser()
    _check_output(output, (source, checkpoint))
    smiles = read_smiles(source, config.dataset.smiles)
    module = load_regressor(checkpoint, config.backend, config.device)
    result = predict_smiles(
        module,
        smiles,
        on_error=config.dataset.on_error,
        batch_size=config.dataset.batch_size,
        num_workers=config.dataset.num_workers,
        source=str(source),
        checkpoint=checkpoint,
    )
    write_table(output, result, with_errors=config.dataset.on_error == "skip")
    failed = sum(map(bool, result.errors))
    what = ", ".join(f"{name} in {unit}" if unit else name for name, unit in zip(result.names, result.units, strict=True))
    log.info("%s predictions (%s) are in %s", f"{len(smiles) - failed:,}", what, output)
    if failed:
        log.warning("%s rows have no prediction; the column error says why", f"{failed:,}")
    return result


def predict_smiles(
    module: Any,
    smiles: Sequence[str],
    *,
    on_error: Literal["raise", "skip"] = "raise",
    batch_size: int = 1024,
    num_workers: int | None = None,
    source: str = "",
    checkpoint: Path | str = "the checkpoint",
) -> Predictions:
    """Predictions for SMILES, with a module from :func:`molgcn.training.restore.load_regressor`.

    Args:
        module: a :class:`molgcn.training.regressor.MoleculeRegressor`.
        smiles: M strings.
        on_error: "raise" stops at the first string that is not a molecule, "skip" leaves its prediction empty.
        batch_size: molecules a batch.
        num_workers: processes that read molecules; None chooses.
        source: name of the strings' origin, for messages.
        checkpoint: name of the module's origin, for messages.

    Raises:
        UserError: for a string that is not a molecule (with on_error="raise"), or a module that was not trained on SMILES.
    """
    from molgcn.data.featurize import featurize_items
    from molgcn.data.packed import PackedMolecules
    from molgcn.training.inference import predict_molecules
    from molgcn.training.restore import require_features

    features = require_features(module, Path(checkpoint))
    featurized = featurize_items(smiles, features=features, on_error=on_error, num_workers=num_workers, source=source)
    graphs: dict[str, Any] = featurized.graphs()
    molecules = PackedMolecules.from_arrays(**graphs, rows=featurized.kept, features=features)
    values = np.full((len(smiles), len(module.target_names)), np.nan, np.float32)
    values[featurized.kept] = predict_molecules(module, molecules, batch_size)
    errors = [""] * len(smiles)
    for row, reason in featurized.failures:
        errors[row] = reason
    for row in featurized.kept[~np.isfinite(values[featurized.kept]).all(axis=1)].tolist():
        errors[row] = "the model's output is not a finite number"
        if on_error == "raise":
            raise UserError(f"Row {row} of {source or 'the list of SMILES'} ('{smiles[row]}'): {errors[row]}. Use another checkpoint.")
    return Predictions(smiles, values, errors, tuple(module.target_names), tuple(module.target_units))


def read_smiles(path: Path, column: str) -> list[str]:
    """The SMILES of a CSV or TSV file's column, or the first word of every line of a .smi, .smiles or .txt file; .gz too.

    Raises:
        UserError: when the file is missing, empty, of another kind, or has no such column.
    """
    from molgcn.data.tables import read_columns

    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind in _TABLES:
        return read_columns(path, [column], key="smiles")[column]
    if kind not in _LISTS:
        raise UserError(f"dataset.path={path}: expected a file that ends in {', '.join((*_TABLES, *_LISTS))} (or with .gz after that).")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            smiles = [(line.split() or [""])[0] for line in file]
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a text file of SMILES, one a line: {error}.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}. Give an existing file as dataset.path.") from error
    if not smiles:
        raise UserError(f"{path} is empty. Expected one SMILES a line.")
    return smiles


def write_table(path: Path, result: Predictions, with_errors: bool) -> None:
    """`row, smiles, <target> [<unit>], ...` and, with `with_errors`, `error`: one line a row of the input, in its order.

    The file appears complete or not at all; cells that a spreadsheet would take for a formula get a leading apostrophe.
    """
    from molgcn.training.result import inert, label

    header = ["row", "smiles", *map(label, result.names, result.units), *(["error"] if with_errors else [])]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(map(inert, header))
            for row, (text, values, error) in enumerate(zip(result.smiles, result.values, result.errors, strict=True)):
                cells = ["" if np.isnan(value) else f"{value:.7g}" for value in values]
                writer.writerow([row, inert(text), *cells, *([inert(error)] if with_errors else [])])
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"output={path} cannot be written: {error.strerror}. Give another file with output=.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_output(output: Path, inputs: Sequence[Path]) -> None:
    """Refuses, before any work, an output that would replace an input or that cannot be written."""
    if output.resolve() in [path.resolve() for path in inputs]:
        raise UserError(f"output={output} would replace a file that is read. Give another file with output=.")
    if output.is_dir():
        raise UserError(f"output={output} is a folder. Give a file, for example output={output / 'predictions.csv'}.")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"output={output} cannot be written: {error.strerror}. Give another file with output=.") from error
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"output={output} cannot be written: no permission for {output.parent}. Give another file with output=.")


if __name__ == "__main__":
    main()
