"""Train what a configuration asks for: one model, or several as one run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lightning import Callback
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import Config, parse
from molgcn.data.datamodule import load_once
from molgcn.errors import UserError
from molgcn.files.yaml_file import read_yaml
from molgcn.replicates.combine import combine
from molgcn.replicates.plan import Member, Plan, first_training, plan
from molgcn.training.compatible import check_same_keys
from molgcn.training.members import write_members
from molgcn.training.result import RunResult
from molgcn.training.resume import check_new, config_text, holds_run, write_config
from molgcn.training.train import alone_in, train

log = logging.getLogger(__name__)


def train_all(config: Config, folder: Path, watchers: Sequence[Callback] = ()) -> RunResult:
    """Train one model in `folder`, or each member of a run of several in a folder of its own below it.

    A run of several gets `config.yaml`, `members.json` (the members' folders), and with `training.report` also `report.html`,
    `predictions_test.csv` and the picture of a single run. With `config.resume` members that have a `result.json` are kept as they are,
    the one that was interrupted goes on, and the others follow. Where a key has changed, all members go on with it. `watchers` are further
    callbacks of each member's Trainer.

    Raises:
        UserError: If a training cannot start, go on or end well; see :func:`molgcn.training.train.train`.
    """
    planned = plan(config)
    if not planned.members:
        return train(config, folder, watchers)
    with alone_in(folder):
        before = _begin(config, folder, planned)
        results: dict[str, RunResult] = {}
        try:
            for number, member in enumerate(planned.members, 1):
                place = folder / member.name
                kept = (place / "result.json").is_file()
                rank_zero_only(log.info)("%s (%d of %d)%s", member.name, number, len(planned.members), " is complete" if kept else "")
                results[member.name] = RunResult.load(place) if kept else _train_member(_named(member, config, folder), place, watchers)
        except Exception:
            if before is not None and not results:  # changed keys that the first member refuses must not block the next resume=
                rank_zero_only(write_config)(before, folder)
            raise
        return combine(config, folder, results, planned.ensemble)


def _begin(config: Config, folder: Path, planned: Plan) -> str | None:
    """Check that the run may start or go on, and write its files.

    Returns:
        The text of an earlier `config.yaml`; None for a new run.
    """
    before, changed = None, True
    if config.resume is None:
        check_new(folder)
        load_once(first_training(config).dataset)  # else a mistake in the data would be reported as one of the first member
    else:
        check_same_keys(config, folder)
        before = (folder / "config.yaml").read_text("utf-8")
        changed = replace(parse(Config, read_yaml(folder / "config.yaml", dict)), resume=None) != replace(config, resume=None)
    if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
        if changed:  # results with other keys do not count, and neither do those of an earlier run that had no checkpoint yet
            for member in planned.members:
                (folder / member.name / "result.json").unlink(missing_ok=True)
        write_config(config_text(config), folder)
        write_members(folder, [member.name for member in planned.members])
    return before


def _named(member: Member, config: Config, folder: Path) -> Member:
    """Return the member with a name of its own in W&B, in one group with the run's other members."""
    logger = config.logger
    name = f"{logger.run_name or folder.resolve().name} {member.name}"
    logger = replace(logger, run_name=name, group=logger.group or folder.resolve().name)
    return replace(member, config=replace(member.config, logger=logger))


def _train_member(member: Member, folder: Path, watchers: Sequence[Callback]) -> RunResult:
    try:
        result = train_all(replace(member.config, resume=str(folder) if holds_run(folder) else None), folder, watchers)
    except UserError as error:
        raise UserError(f"{member.name}: {error}") from error
    rank_zero_only(result.save)(member.overrides)
    return result
