"""Train what a configuration asks for: one model, or several as one run."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lightning import Callback
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import Config, parse
from molgcn.data.datamodule import load_once
from molgcn.errors import UserError, counted
from molgcn.files.json_file import read_json, write_json
from molgcn.files.yaml_file import read_yaml
from molgcn.replicates.combine import combine
from molgcn.replicates.plan import Member, Plan, check_refit, first_training, plan, refit_of
from molgcn.training.build import check_options
from molgcn.training.compatible import check_same_keys
from molgcn.training.members import REFIT, trainings_of, write_members
from molgcn.training.result import RunResult
from molgcn.training.resume import check_new, config_text, holds_run, write_config
from molgcn.training.train import alone_in, train

log = logging.getLogger(__name__)


def train_all(config: Config, folder: Path, watchers: Sequence[Callback] = ()) -> RunResult:
    """Train one model in `folder`, or each member of a run of several in a folder of its own below it.

    A run of several gets `config.yaml`, `members.json` (the members' folders), and with `training.report` also `report.html`,
    `predictions_test.csv` and the picture of a single run. With `config.resume` members that have a `result.json` are kept as they are,
    the one that was interrupted goes on, and the others follow. Where a key has changed, all members go on with it. With `training.refit`
    the folder `refit` follows, a training on all molecules. `watchers` are further callbacks of each member's Trainer.

    Raises:
        UserError: If a training cannot start, go on or end well; see :func:`molgcn.training.train.train`.
    """
    planned = plan(config)
    if config.training.refit:
        check_refit(config)
    if not planned.members:
        return train(config, folder, watchers)
    with alone_in(folder):
        before = _begin(config, folder, planned)
        results: dict[str, RunResult] = {}
        try:
            for number, member in enumerate(planned.members, 1):
                results[member.name] = _result_of(member, f" ({number} of {len(planned.members)})", config, folder, watchers)
        except Exception:
            if before is not None and not results:  # changed keys that the first member refuses must not block the next resume=
                rank_zero_only(write_config)(before, folder)
            raise
        epochs = _refit(config, folder, watchers) if config.training.refit else None
        return combine(config, folder, results, planned.ensemble, epochs)


def _begin(config: Config, folder: Path, planned: Plan) -> str | None:
    """Write the files of a run that may start or go on, and return the text of an earlier `config.yaml`; None for a new run."""
    before, changed = None, True
    if config.resume is None:
        check_new(folder)
        check_options(first_training(config))
        load_once(first_training(config).dataset)  # else a mistake in the data would be reported as one of the first member
    else:
        check_same_keys(config, folder)
        before = (folder / "config.yaml").read_text("utf-8")
        changed = _without_refit(parse(Config, read_yaml(folder / "config.yaml", dict))) != _without_refit(config)
    if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
        if changed:  # results with other keys do not count, and neither do those of an earlier run that had no checkpoint yet
            for name in (*(member.name for member in planned.members), REFIT):
                (folder / name / "result.json").unlink(missing_ok=True)
        write_config(config_text(config), folder)
        write_members(folder, [member.name for member in planned.members])
    return before


def _without_refit(config: Config) -> Config:
    """Return what the folds of a run depend on, so that a complete one can be refitted afterwards."""
    return replace(config, resume=None, training=replace(config.training, refit=False))


def _refit(config: Config, folder: Path, watchers: Sequence[Callback]) -> int:
    """Train on all molecules once the folds are complete, and return the number of epochs; one of other keys or epochs starts anew."""
    member = refit_of(config, trainings_of(folder))
    epochs, noted = member.config.trainer["max_epochs"], folder / f"{REFIT}.json"
    made_with = {"epochs": epochs, "config": config_text(_without_refit(config))}
    current = noted.is_file() and read_json(noted) == made_with  # each process finds out before the first one changes the folder
    if not current and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
        shutil.rmtree(folder / REFIT, ignore_errors=True)
        write_json(noted, made_with)
    _result_of(member, f" (all molecules, {counted(epochs, 'epoch')})", config, folder, watchers, fresh=not current)
    return epochs


def _result_of(member: Member, which: str, config: Config, folder: Path, watchers: Sequence[Callback], fresh: bool = False) -> RunResult:
    """Return the results of a member, which is trained or goes on if it is not complete; with `fresh` it is trained from the start."""
    place = folder / member.name
    kept = (place / "result.json").is_file() and not fresh
    rank_zero_only(log.info)("%s%s%s", member.name, which, " is complete" if kept else "")
    return RunResult.load(place) if kept else _train_member(_named(member, config, folder), place, watchers, fresh)


def _named(member: Member, config: Config, folder: Path) -> Member:
    """Return the member with a name of its own in W&B, in one group with the run's other members."""
    logger = config.logger
    name = f"{logger.run_name or folder.resolve().name} {member.name}"
    logger = replace(logger, run_name=name, group=logger.group or folder.resolve().name)
    return replace(member, config=replace(member.config, logger=logger))


def _train_member(member: Member, folder: Path, watchers: Sequence[Callback], fresh: bool) -> RunResult:
    try:
        result = train_all(replace(member.config, resume=str(folder) if holds_run(folder) and not fresh else None), folder, watchers)
    except UserError as error:
        raise UserError(f"{member.name}: {error}") from error
    rank_zero_only(result.save)(member.overrides)
    return result
