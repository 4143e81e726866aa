"""The work of `python -m molgcn.explain`, from a checkpoint and molecules to a folder of explanations."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from molgcn.config.run import BackendConfig
from molgcn.errors import UserError, counted, shown
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import explain_records, explainer
from molgcn.explain.names import DescriptorGroups, Names, small_share
from molgcn.explain.network import ExplainedNetwork
from molgcn.explain.output import ExplanationFolder, open_folder
from molgcn.explain.page import PAGE_NAME
from molgcn.explain.trees import BlendedTrees
from molgcn.files.new_folder import new_folder
from molgcn.screening.config import STREAM, one_checkpoint
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.run import Summary, open_screening
from molgcn.tasks.base import Task
from molgcn.training.restore import find_checkpoint

log = logging.getLogger(__name__)

DEFAULT = "explanations"


def explain(config: ExplainConfig) -> Summary:
    """Explain the predictions of molecules, and write tables, pictures and a page into a folder.

    Raises:
        UserError: for every mistake in the configuration, the checkpoint or the file, and when Captum is needed but not installed.
    """
    checkpoint = find_checkpoint(one_checkpoint(config.ckpt), models=config.models)
    config.source  # noqa: B018, raises where it is wrong
    ensemble = Ensemble.load([checkpoint], BackendConfig(name="reference"), config.device)
    ensemble.levels.check_none("python -m molgcn.explain", "Train a model of the targets of molecules alone to explain these.")
    column, name, header = explained_column(ensemble.task, config)
    network = ExplainedNetwork(ensemble.members[0], column)
    compute = explainer(network, config)
    folder = _folder(config)
    trees = BlendedTrees.of(ensemble.members[0], config.target or ensemble.names[0], config.class_number or 0)
    inputs = ensemble.inputs
    groups = DescriptorGroups.of(ensemble.members[0].descriptor_names, inputs.descriptors, inputs.components)
    share = 1.0 if trees is None else trees.share
    if trees is not None:
        groups = groups.with_trees(trees.names, ensemble.tree_generators, inputs.components)
    if not config.adds_up:
        _say_what_has_no_attention(groups, trees)
        groups, share = DescriptorGroups((), {}), 1.0
    names = Names(name, header, inputs.features, inputs.standardize, str(checkpoint), inputs.components, groups, share)
    with _removed_if_empty(folder), open_screening(config, folder / f"{DEFAULT}.csv", ensemble, "explained") as screening:
        molecules = screening.molecules
        with open_folder(folder, config, names, molecules) as output:
            for chunk in screening.follow(explain_records(compute, network, trees, ensemble, molecules.records, molecules.kind, config)):
                output.write(chunk)
            summary = screening.summary()
    _say(summary, output, name, folder, config)
    return summary


def explained_column(task: Task, config: ExplainConfig) -> tuple[int, str, str]:
    """Return the index of the explained column of predictions, its name, and its header in a table; UserError without target or class."""
    names, target = list(task.names), config.target
    if target is None and len(names) > 1:
        raise UserError(
            f"The network has {len(names)} targets, and only one is explained. Give target= one of {', '.join(map(shown, names))}."
        )
    target = names[0] if target is None else target
    if target not in names:
        raise UserError(f"target={shown(target)} is not a target of the network. Expected one of {', '.join(map(shown, names))}.")
    part = next(part for part in task.parts if target in part.names)
    place, number = names.index(target), config.class_number
    many = part.num_classes > 0 and len(task.columns[place]) > 1
    if many and (number is None or not 0 <= number < part.num_classes):
        raise UserError(
            f"'{shown(target)}' has {part.num_classes} classes, and the logit of only one is explained. Give class_number= from 0 to "
            f"{part.num_classes - 1}."
        )
    if not many and number is not None:
        raise UserError(f"class_number={number} is for task=multiclass, and '{shown(target)}' has task={part.name}. Leave it out.")
    column = sum(len(columns) for columns in task.columns[:place]) + (number or 0)
    if part.has_units:
        return column, task.labels[place], task.columns[place][0]
    logit = f"logit of {target}" + (f" class {number}" if many else "")
    return column, logit, logit


def _folder(config: ExplainConfig) -> Path:
    if config.output == STREAM:
        raise UserError("output=- is not possible: explanations are several files. Give a folder.")
    if config.output is None:
        return Path(new_folder(DEFAULT))
    folder = Path(config.output).expanduser()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"output={folder} exists and is not an empty folder. Give a new folder, or leave output= out to get one.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"output={folder} cannot be made: {error.strerror or error}. Give another folder.") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"output={folder} cannot be written: no permission. Give another folder.")
    return folder


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


def _say_what_has_no_attention(groups: DescriptorGroups, trees: BlendedTrees | None) -> None:
    others = [counted(len(groups.names), "descriptor")] * bool(groups.names) + ["boosted trees"] * (trees is not None)
    if others:
        log.warning(
            "Attention is that of atoms. It says nothing of the %s that predict with them, as method=masking does", " and ".join(others)
        )


def _say(summary: Summary, output: ExplanationFolder, name: str, folder: Path, config: ExplainConfig) -> None:
    log.info("%s of %s in %s; %s", counted(summary.predicted, "explanation"), name, folder / PAGE_NAME, summary.speed)
    if config.adds_up:
        log.info("Contributions add up to the prediction minus the baseline, within %.1e of the sum of their absolute values", output.worst)
    else:
        log.info("Shares of attention add up to 1 in each molecule, and not to the prediction: method=masking shares that out")
    if output.beyond:
        log.warning(
            "The contributions of %s miss that by more than tolerance=%g: do not read them as shares. Give more steps= (now %d), "
            "or use method=masking, which always adds up.",
            *(counted(output.beyond, "molecule"), config.tolerance, config.steps),
        )
    if few := small_share(output.shares):
        log.warning("%s", few)
    summary.warn_of_failures("explanation", config.on_error, folder / f"{DEFAULT}.csv")
