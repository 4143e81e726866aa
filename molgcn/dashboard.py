"""The command `python -m molgcn.dashboard entity/project`: it makes a W&B workspace with loss and throughput by backend."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from molgcn.errors import UserError

NAME = "Backends"
STEP = "trainer/global_step"
GROUP = "backend.name"  # a key of the run's configuration

# By section, its panels: the title, the logged value and the unit of each.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Learning": (
        ("Training loss", "train/loss", "loss"),
        ("Validation loss", "val/loss", "loss"),
        ("Learning rate", "lr", "rate"),
    ),
    "Throughput": (
        ("Molecules per second", "throughput/molecules_per_second", "1/s"),
        ("Time of a step", "throughput/step_ms", "ms"),
        ("Waiting for data", "throughput/data_wait", "share of the time"),
        ("Memory", "throughput/memory_mb", "MB"),
        ("Kernels per step", "throughput/kernel_launches", "launches"),
    ),
}
_OVER_TIME = (("Training loss over wall time", "train/loss"), ("Validation loss over wall time", "val/loss"))


def build_workspace(entity: str, project: str, name: str = NAME) -> Any:
    """Build the `wandb_workspaces.workspaces.Workspace` of a W&B project, with a name for its saved view, without saving it.

    There is one section per topic and one line per backend, which shows the mean of its runs with their range shaded.
    """
    try:
        import wandb_workspaces.workspaces as ws
        from wandb_workspaces.reports.v2.interface import LinePlot
    except ImportError as error:
        raise UserError(
            "The dashboard needs the package wandb-workspaces, which is not installed. Install it with `pip install molgcn[dashboard]`."
        ) from error

    def panel(title: str, metric: str, unit: str, x: str) -> Any:
        return LinePlot(
            title=title, x=x, y=[metric], title_y=unit, log_y=metric.endswith("/loss"), groupby_aggfunc="mean", groupby_rangefunc="minmax"
        )

    sections = {title: [panel(*one, STEP) for one in panels] for title, panels in SECTIONS.items()}
    sections["Learning"] += [panel(title, metric, "loss", "RelativeTime(Wall)") for title, metric in _OVER_TIME]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=[ws.Section(name=title, panels=panels, is_open=True) for title, panels in sections.items()],
        settings=ws.WorkspaceSettings(x_axis=STEP),
        runset_settings=ws.RunsetSettings(groupby=[ws.Config(GROUP)]),
    )


def create(target: str, name: str = NAME) -> str:
    """Save the workspace as a view, with this name, of the project "entity/project", and return its URL; UserError where W&B refuses."""
    entity, _, project = target.partition("/")
    if not entity or not project or "/" in project:
        raise UserError(f"'{target}' is not a W&B project. Expected entity/project, as in my-team/molgcn.")
    workspace = build_workspace(entity, project, name)
    _require_key()
    try:
        workspace.save()
    except Exception as error:  # the network and the service raise errors of many kinds
        said = " ".join(str(error).split())[:300]
        raise UserError(
            f"W&B did not take the dashboard for {target}: {said}. Check the entity, the project and the connection."
        ) from error
    return str(workspace.url)


def _require_key() -> None:
    import wandb

    try:
        found = wandb.login(prompt=False, verify=False)
    except Exception:  # for a text that cannot be a key
        found = False
    if not found:
        raise UserError("W&B has no API key here. Run `wandb login` once, or set WANDB_API_KEY; the dashboard is saved on its server.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python -m molgcn.dashboard`; None means the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m molgcn.dashboard", description="A W&B workspace with loss and throughput by backend.")
    parser.add_argument("project", metavar="entity/project", help="where the runs are")
    parser.add_argument("--name", default=NAME, help=f"name of the saved view (default: {NAME})")
    given = parser.parse_args(arguments)
    try:
        print(create(given.project, given.name))
    except UserError as error:
        print(f"\nError: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
