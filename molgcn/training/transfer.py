"""Start a run from the weights of a checkpoint: always with the encoder's, and with the head's where it predicts the same."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from molgcn.data.featurizers import get_featurizer
from molgcn.errors import UserError
from molgcn.tasks.registry import build_task, learned_with
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.checkpoint_format import config_of, features_of
from molgcn.training.compatible import AVERAGE, changed_options, check_same_network
from molgcn.training.module import MoleculeModule

log = logging.getLogger(__name__)

HEAD = ("head.", "atom_head.", "bond_head.", "descriptors.")  # with which keys of heads start; one reads descriptors
# options that weights do not depend on, or the head's
_FREE = ("head_layers", "head_channels", "descriptor_limit", "dropout", "init", "settings")
_SAME = {
    "task": "task",
    "num_classes": "number of classes",
    "target_names": "targets",
    "target_units": "units",
    "descriptor_names": "descriptors",
}


def start_from(module: MoleculeModule, path: Path) -> None:
    """Load the weights of a checkpoint, which are the moving average where it has one, into an untrained module that they must fit.

    The head's weights are loaded as `ckpt_head` says; auto loads them where they predict the same. A log message says which were loaded.
    """
    checkpoint = load_checkpoint(path)
    _check_features(module, checkpoint["molgcn"], path)
    saved = checkpoint["state_dict"]
    average = {key.removeprefix(AVERAGE): value for key, value in saved.items() if key.startswith(AVERAGE)}
    weights = average or {key.removeprefix("model."): value for key, value in saved.items() if key.startswith("model.")}
    why_fresh = _why_fresh(module, checkpoint["molgcn"], path, weights)
    if why_fresh is not None and module.config.training.freeze_head:
        raise UserError(
            f"training.freeze_head={module.config.training.freeze_head} would keep untrained weights, since the head starts anew: "
            f"{why_fresh}. Leave it out, or take the head of {path} with ckpt_head=checkpoint."
        )
    check_same_network(module, checkpoint, path, but=() if why_fresh is None else tuple(f"model.{key}" for key in HEAD))
    if why_fresh is not None:
        fresh = {key: value for key, value in module.model.state_dict().items() if key.startswith(HEAD)}
        weights = {key: value for key, value in weights.items() if not key.startswith(HEAD)} | fresh
    module.model.load_state_dict(weights)
    if module.ema is not None:
        module.ema.module.load_state_dict(weights)
    count = sum(not key.startswith(HEAD) for key in weights)
    head = f"and the head's {len(weights) - count} are taken" if why_fresh is None else f"are taken; the head starts anew: {why_fresh}"
    log.info("%s: the encoder's %d weights %s", path, count, head)
    free = (*_FREE, "pool") if why_fresh else _FREE
    changed = changed_options(module.config.model, checkpoint["molgcn"]["config"]["model"])
    if others := [override for name, override in changed.items() if name not in free]:
        log.warning("Its encoder was trained with %s, which makes another network of the same weights", " ".join(others))


def _why_fresh(module: MoleculeModule, saved: Mapping[str, Any], path: Path, weights: Mapping[str, Tensor]) -> str | None:
    """Return why the checkpoint's head is not taken, in words; None where it is."""
    wanted = module.config.ckpt_head
    if wanted != "auto":
        return None if wanted == "checkpoint" else "ckpt_head=fresh"
    if not any(key.startswith(HEAD) for key in weights):
        return "the checkpoint has none"
    for key, name in _SAME.items():
        theirs, ours = saved.get(key, []), module.architecture[key]  # older checkpoints know of no descriptors
        if theirs != ours:
            return f"the checkpoint's {name} {_shown(theirs)}, and this run's {_shown(ours)}"
    config = config_of(saved, path)
    task = build_task(saved["task"], saved["target_names"], saved["target_units"], saved["num_classes"], config.dataset)
    if learned_with(task, config.training).showing(()) != module.task.showing(()):
        return "training.loss, or a target's task or transform, is another"
    mine, its = (
        {key: tuple(value.shape) for key, value in one.items() if key.startswith(HEAD)} for one in (module.model.state_dict(), weights)
    )
    return None if mine == its else "its layers have other widths"


def _shown(value: Any) -> str:
    return f"are {', '.join(one or '-' for one in value) or 'none'}" if isinstance(value, list) else f"is {value}"


def _check_features(module: MoleculeModule, saved: Mapping[str, Any], path: Path) -> None:
    theirs = features_of(saved, path)
    for of, ours in module.own_features.items():
        its = saved.get(f"{of}_feature_names", [])
        if len(ours) != len(its):
            raise UserError(
                f"The checkpoint {path} was trained with {len(its)} own features of {of}s, and this run has {len(ours)}. "
                f"Give as many with dataset.{of}_features_path, or leave it out."
            )
    if theirs is None or module.features is None:
        return
    if get_featurizer(theirs).versioned != get_featurizer(module.features).versioned:
        raise UserError(
            f"The checkpoint {path} was trained with dataset.features={theirs}, and this run has {module.features}, whose columns mean "
            f"something else. Give dataset.features={theirs}."
        )
