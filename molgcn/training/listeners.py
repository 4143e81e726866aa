"""Find the callbacks that listen to a loop's hooks, so that the loop calls no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.profilers import PassThroughProfiler

from molgcn.training.module import MoleculeModule
from molgcn.training.steps.watch import overridden

_NOTHING = nullcontext()
Listeners = dict[str, list[Callable[..., Any]]]


class NoProfiler(PassThroughProfiler):
    """Profiles nothing, without the generator that Lightning's own makes for each hook."""

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return _NOTHING


def own_listeners(trainer: Trainer, hooks: Sequence[str], own: Sequence[str]) -> Listeners | None:
    """Return the methods of callbacks that listen to each hook.

    None where one is not of this program, a subclass of the module has one of the methods `own`, or a profiler listens to all.
    """
    if not isinstance(trainer.profiler, NoProfiler) or overridden(trainer.lightning_module, MoleculeModule, own):  # type: ignore[attr-defined]
        return None
    found: Listeners = {}
    for hook in hooks:
        listening: list[Callback] = [one for one in trainer.callbacks if overridden(one, Callback, (hook,))]  # type: ignore[attr-defined]
        if not all(type(one).__module__.startswith("molgcn.") or isinstance(one, Timer) for one in listening):
            return None
        found[hook] = [getattr(one, hook) for one in listening]
    return found
