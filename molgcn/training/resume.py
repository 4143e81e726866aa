"""Find the run that resume=<run folder>|last names, and its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from molgcn.config.overrides import as_typed, quote, values_of
from molgcn.errors import UserError
from molgcn.files.json_file import read_json
from molgcn.files.whole_file import write_text
from molgcn.files.yaml_file import read_yaml, yaml_text
from molgcn.training.members import FILE as MEMBERS
from molgcn.training.members import REFIT, trainings_of
from molgcn.training.provenance import newer_writer, this_version

if TYPE_CHECKING:
    from molgcn.config.run import Config

_LAST = Path("checkpoints") / "last.ckpt"
_CONFIG = Path("config.yaml")
# options with which nothing runs in hydra.run.dir
_ELSEWHERE = {"-c", "--cfg", "-i", "--info", "-h", "--help", "--hydra-help", "-m", "--multirun"}
NOTED = Path(".hydra") / "overrides.yaml"


def prepare_resume(arguments: list[str]) -> list[str]:
    """Return the command line with `resume=` turned into the run's folder, to which Hydra then writes.

    A command line without `resume=` is returned as it is, after a check that its `hydra.run.dir` does not hold a run whose files Hydra
    would replace. UserError says why a run cannot go on.
    """
    wanted = values_of("resume", arguments)
    if not wanted:
        runs = _ELSEWHERE.isdisjoint(argument.partition("=")[0] for argument in arguments)
        for given in values_of("hydra.run.dir", arguments)[-1:] if runs else []:
            check_new(Path(given))
        return arguments
    if {"-m", "--multirun"} & set(arguments):
        raise UserError("resume= continues one run and does not go with --multirun. Resume the runs of a sweep one by one.")
    rest = [argument for argument in arguments if not argument.startswith("resume=")]
    for argument in rest:
        if argument.startswith("~"):
            raise UserError(
                f"{argument} does not go with resume=: a run keeps its keys. Give the key another value, null where it allows it."
            )
        key = argument.lstrip("+").partition("=")[0]
        if not argument.startswith("-") and "." not in key:
            raise UserError(
                f"{argument} does not go with resume=, which continues with the run's own configuration; single keys such as "
                "trainer.max_epochs=100 may change. To start anew from its weights use ckpt_path=."
            )
    folder = last_run(_runs_folders(rest)) if wanted[-1] == "last" else Path(wanted[-1]).expanduser()
    check_resumable(folder, wanted[-1])
    check_writer(folder)
    if "${" in str(folder.resolve()):
        raise UserError(f"{folder.resolve()}: Hydra takes ${{ in the name of a run's folder for one of its keys. Rename the folder.")
    quoted = quote(str(folder.resolve()))
    return [*rest, f"resume={quoted}", f"hydra.run.dir={quoted}", "hydra.output_subdir=null"]


def holds_run(folder: Path) -> bool:
    """Return whether there is a run in `folder` that can go on: one of its trainings has reached a checkpoint."""
    return any((training / _LAST).is_file() for training in trainings_of(folder))


def check_new(folder: Path) -> None:
    """Raise UserError where `folder` holds a run, which a new one would replace."""
    if holds_run(folder):
        raise UserError(
            f"{folder} already holds a run. Continue it with {as_typed('resume', folder)}, or choose another folder with hydra.run.dir=."
        )


def _runs_folders(arguments: Sequence[str]) -> list[Path]:
    return [Path((values_of("paths.runs", arguments) or ["runs"])[-1]), Path((values_of("paths.sweeps", arguments) or ["multirun"])[-1])]


def last_run(folders: Sequence[Path]) -> Path:
    """Return the folder of the run below `folders` that was the last to start, go on or write a checkpoint."""
    files = (NOTED, _CONFIG, _LAST)
    found = ((file, path) for file in files for folder in folders for level in ("*", "*/*") for path in folder.glob(f"{level}/{file}"))
    runs = dict.fromkeys(path.parents[len(file.parts) - 1] for file, path in found)
    seen: dict[Path, float] = {}
    for run in runs:
        # Hydra's own folder has a config.yaml too, and a member of a run of several is not a run of its own
        if run.name == NOTED.parent.name or (run.parent / MEMBERS).is_file():
            continue
        written = [path for place in (run, *trainings_of(run), run / REFIT) for file in files if (path := place / file).is_file()]
        seen[run] = max(path.stat().st_mtime for path in written)
    if not seen:
        raise UserError(
            f"resume=last finds no run with a checkpoint below {' or '.join(str(folder) for folder in folders)}. Give the folder, as in "
            "resume=runs/<run>, or start a run first."
        )
    return max(seen, key=lambda run: seen[run])


def check_resumable(folder: Path, wanted: str) -> None:
    """Raise UserError unless `folder`, which `resume=<wanted>` means, holds a run with a checkpoint."""
    if not folder.is_dir():
        raise UserError(f"resume={folder}: there is no such folder. Expected a run's folder, for example runs/<run>, or resume=last.")
    for name, there in ((_LAST, holds_run(folder)), (_CONFIG, (folder / _CONFIG).is_file())):
        if not there:
            raise UserError(
                f"resume={wanted}: {folder} has no {name}, so there is nothing to continue from. Expected a run that reached its first "
                "checkpoint; start this one again, or name another one by its folder."
            )


def check_writer(folder: Path) -> None:
    """Raise UserError for a run that a newer molgcn began, which this one may not be able to continue exactly."""
    for provenance in (folder / "provenance.json", *sorted(folder.glob("*/provenance.json"))):  # those of a run of several trainings
        content = read_json(provenance) if provenance.is_file() else None
        newer = newer_writer(content.get("versions") if isinstance(content, dict) else None)
        if newer is None:
            continue
        raise UserError(
            f"The run in {folder} was begun by molgcn {newer}, and this is molgcn {this_version()}, which may not continue it as it was. "
            f"Install that version, or start a new run from its weights with {as_typed('ckpt_path', folder)}."
        )


def saved_config(folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the run's own configuration with the keys changed that the command line names; nothing in the file is interpolated."""
    config = OmegaConf.create(read_yaml(folder / _CONFIG, dict))
    changes = [override.lstrip("+") for override in overrides if not override.startswith(("resume=", "hydra.", "paths."))]
    merged: Any = OmegaConf.to_container(OmegaConf.merge(config, OmegaConf.from_dotlist(changes)), resolve=False)
    return {**merged, "resume": str(folder)}


def config_text(config: Config) -> str:
    return yaml_text(config.to_dict())


def write_config(text: str, folder: Path) -> None:
    write_text(folder / _CONFIG, text)


def noted_overrides(folder: Path) -> list[str]:
    """Return the overrides with which a run was started, as Hydra saved them in its folder; none for a run from Python."""
    return read_yaml(folder / NOTED, list) if (folder / NOTED).is_file() else []
