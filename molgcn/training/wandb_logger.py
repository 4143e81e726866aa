"""Log curves, throughput, configuration and plots to Weights & Biases, which never prompts and never stops a run."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import LoggerConfig
from molgcn.files.whole_file import write_text

log = logging.getLogger(__name__)
_STEP = "trainer/global_step"


def wandb_mode() -> Literal["online", "offline", "disabled"]:
    """Return the mode of W&B: `WANDB_MODE` if it is set, else online where an API key is configured, else offline."""
    import wandb

    mode = os.environ.get("WANDB_MODE", "")
    if mode in ("online", "offline", "disabled"):
        return mode  # type: ignore[return-value]
    if mode == "dryrun":
        return "offline"
    try:
        return "online" if wandb.login(prompt=False, verify=False) else "offline"
    except Exception as error:  # an API key or an address that is not valid
        log.warning("W&B stays offline: %s", error)
        return "offline"


class Wandb(Logger):
    """Logs a training run to a W&B run, which writes to `wandb` in the run's folder.

    A resumed run continues the same W&B run, whose id is kept in `wandb_id.txt`. Whatever the service does, training goes on: after the
    first failure one warning is printed and nothing more is sent.
    """

    def __init__(self, folder: Path, config: LoggerConfig, settings: dict[str, Any]) -> None:
        super().__init__()
        self.folder = folder
        self.config = config
        self.run: Any = None
        self._start(settings)

    @rank_zero_only
    def _start(self, settings: dict[str, Any]) -> None:
        import wandb

        self.mode = wandb_mode()
        if self.mode == "disabled":
            return
        path = self.folder / "wandb_id.txt"
        run_id = path.read_text().strip() if path.exists() else secrets.token_hex(4)
        write_text(path, run_id)
        options: dict[str, Any] = {
            "project": self.config.project,
            "name": self.config.run_name or self.folder.name,
            "group": self.config.group,
            "tags": self.config.tags or None,
            "config": settings,
            "dir": str(self.folder),
            "id": run_id,
            "reinit": "finish_previous",
        }
        modes: list[Any] = [self.mode, "offline"]
        for mode in dict.fromkeys(modes):
            try:
                silent = wandb.Settings(silent=True, console="off", init_timeout=30)
                self.run = wandb.init(**options, mode=mode, resume="allow" if mode == "online" else None, settings=silent)
                self.mode = mode
                break
            except Exception as error:
                log.warning("W&B could not start in mode %s: %s", mode, " ".join(str(error).split()))
                wandb.teardown()  # else its service refuses the id as being in use
        if self.run is not None:
            self.run.define_metric("*", step_metric=_STEP)

    @property
    def name(self) -> str:
        return self.config.project

    @property
    def version(self) -> str | None:
        return self.run.id if self.run is not None else None

    def _send(self, action: Callable[[], Any]) -> None:
        if self.run is None:
            return
        try:
            action()
        except Exception as error:
            log.warning("W&B failed and is left out from here on, training continues: %s", error)
            self.run = None

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._send(lambda: self.run.log({**metrics, _STEP: step}))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the configuration was sent at the start."""

    @rank_zero_only
    def log_images(self, images: dict[str, Path]) -> None:
        """Send image files, by their names; a missing file is left out."""
        import wandb

        self._send(lambda: self.run.log({name: wandb.Image(str(path)) for name, path in images.items() if path.exists()}))

    @rank_zero_only
    def log_summary(self, values: dict[str, float]) -> None:
        self._send(lambda: self.run.summary.update(values))

    @rank_zero_only
    def finish(self, failed: bool) -> None:
        """Close the run; for an offline one, log the `wandb sync` command that uploads it."""
        if self.run is None:
            return
        self._send(lambda: self.run.finish(exit_code=int(failed)))
        self.run = None
        if self.mode == "offline":
            # all that the run has left: the part of a resumed run alone would take the place of what is uploaded already
            log.info("W&B was offline. To upload this run: wandb sync %s", shlex.quote(str(self.folder / "wandb")))
