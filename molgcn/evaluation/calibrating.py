"""Calibrate a trained model, or several that predict together, on a file of molecules with true values."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from molgcn.calibration.calibration import Calibration
from molgcn.calibration.conformal import rank
from molgcn.calibration.methods import check_labels, chosen_methods
from molgcn.config.overrides import as_typed
from molgcn.data.applicability import contents_of, warn_of_extrapolation
from molgcn.data.label_columns import measured
from molgcn.data.load import write_skipped
from molgcn.data.packed import PackedMolecules
from molgcn.data.rows import RowNames
from molgcn.errors import UserError, counted, shown
from molgcn.evaluation.data import check_fits, other_data
from molgcn.screening.config import one_checkpoint
from molgcn.screening.ensemble import Ensemble
from molgcn.training.calibrating import FILE, common_folder, save_joint_calibration
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.inference import combined, predict_molecules
from molgcn.training.trained_on import were_trained_on

if TYPE_CHECKING:
    from molgcn.calibrate import CalibrateConfig

log = logging.getLogger(__name__)


def run(config: CalibrateConfig) -> Calibration:
    """Calibrate what a configuration names; see :func:`molgcn.calibrate.calibrate`."""
    if config.input is None:
        raise UserError("No molecules are named. Give input=<file.csv>, which has the true values of the model's targets.")
    ensemble = Ensemble.load([one_checkpoint(config.ckpt)], config.backend, config.device, models=config.models)
    ensemble.levels.check_none("python -m molgcn.calibrate", "Use training.loss=mve or training.ensemble for their uncertainties.")
    task, methods = ensemble.task, chosen_methods(config.calibration, ensemble.task, "calibration")
    data = other_data(config.input, config.dataset, ensemble.dataset, task.names, task.units)
    check_fits(data.molecules, ensemble.members[0])
    molecules = _unknown(data.molecules, ensemble.trainings, config)
    task.check(molecules.targets, RowNames.of(molecules))
    targets, name = measured(molecules).targets, Path(config.input).name
    _check_enough(task.names, targets, config)
    check_labels(methods, task, targets, config.calibration_alpha, f"the file {name}", "Give a file with true values of them.")
    warn_of_extrapolation(data.title, contents_of(molecules), ensemble.trained_on)

    passes = [predict_molecules(member, molecules, config.dataset.batch_size) for member in ensemble.members]
    predicted, _ = combined(task, np.stack(passes))
    alpha, sets = config.calibration_alpha, config.conformal_sets
    calibration = Calibration.fit(task, predicted, targets, methods, alpha, sets, "file", name)
    _store(calibration, ensemble)
    if data.molecules.skipped:
        folder = next(iter(ensemble.trainings), ensemble.checkpoints[0].parent)
        write_skipped(folder / "calibration_skipped.csv", data.molecules.skipped, data.molecules.files)
    return calibration


def _check_enough(names: Sequence[str], targets: np.ndarray, config: CalibrateConfig) -> None:
    """Raise UserError where no target [n, T] has the labels that a conformal threshold needs, which are few for any other method too."""
    least = next(count for count in itertools.count(1) if rank(count, config.calibration_alpha) <= count)
    most = int((~np.isnan(targets)).sum(axis=0).max())
    if most < least:
        raise UserError(
            f"{config.input} has {counted(most, 'molecule')} with a value of {', '.join(map(shown, names))}, and "
            f"calibration_alpha={config.calibration_alpha:g} needs at least {least}. Give a larger file, or a larger calibration_alpha."
        )


def _unknown(molecules: PackedMolecules, trainings: Sequence[Path], config: CalibrateConfig) -> PackedMolecules:
    """Return the molecules that no model was trained on; UserError unless others are to be left out."""
    trained_on = were_trained_on(trainings, molecules)
    if trained_on is None:
        log.warning("Whether the model was trained on some of these molecules is not known: there is no training_hashes.npy of its run")
        return molecules
    if not trained_on.any():
        return molecules
    known, rows = int(trained_on.sum()), RowNames.of(molecules)
    first = rows[int(np.flatnonzero(trained_on)[0])]
    said = f"The model was trained on {known:,} of the {counted(len(molecules), 'molecule')} of {config.input}"
    if config.known == "raise" or trained_on.all():
        advice = "Give a file of other molecules" + ("" if trained_on.all() else ", or leave these out with known=skip")
        raise UserError(
            f"{said}, the first in row {first}. Errors there are smaller than on new molecules, and so would intervals be. {advice}."
        )
    log.warning("%s, which are left out", said)
    return molecules[np.flatnonzero(~trained_on)]


def _store(calibration: Calibration, ensemble: Ensemble) -> None:
    before, checkpoints = ensemble.calibration, ensemble.checkpoints
    if len(checkpoints) == 1:
        where = checkpoints[0]
        checkpoint = load_checkpoint(where)
        checkpoint["molgcn"]["calibration"] = calibration.to_values()
        write(checkpoint, where)
    else:
        folder = common_folder(checkpoints)
        assert folder is not None  # one path is given, and several checkpoints are those of a run
        where = folder / FILE
        save_joint_calibration(folder, calibration, checkpoints)
    if before is not None:
        log.warning("The earlier calibration is replaced: the model was %s", before.described)
    named = where if len(checkpoints) == 1 else where.parent
    fitted = [name for name, target in zip(ensemble.names, calibration.targets, strict=True) if target.fitted]
    log.info("The uncertainties of %s are %s, in %s", ", ".join(fitted), calibration.described, where)
    log.info("predict and evaluate use it with %s", as_typed("ckpt", named))
