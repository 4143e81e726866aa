"""The command line of `python train.py`: it checks the overrides, starts Hydra, and shows a user's mistake as one paragraph."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from molgcn.config.overrides import (
    as_typed,
    check_overrides,
    compose_config,
    own_presets,
    quote_texts,
    search_path,
    values_of,
    with_swept_groups,
)
from molgcn.errors import UserError
from molgcn.files import new_folder  # noqa: F401, for conf/hydra/default.yaml
from molgcn.mistakes import as_mistake, is_killed_job
from molgcn.process.output import output_may_be_lost
from molgcn.process.signals import Terminated, end_on_interrupt, exit_interrupted, raise_on_interrupt, terminate
from molgcn.resources import resource

if TYPE_CHECKING:
    from molgcn.config.run import Config
    from molgcn.training.result import RunResult

    Train = Callable[[Config, Path], RunResult]

MISTAKE = 2
_TO_FIRST = 5.0  # seconds in which the first of several processes ends the others


def main(train: Train | None = None) -> None:
    """Run the command `molgcn` or `train.py`.

    Args:
        train: the function that trains a run in a folder. None means :func:`molgcn.replicates.run.train_all`, which is slow to import.
    """
    with output_may_be_lost():  # hours of training do not end because a terminal or the reader of a pipe has left
        modules = ["molgcn.training.torchmetrics_import", "molgcn.replicates.run"]
        run_app("train", partial(_train_job, train), prepare=_prepare, imports=modules)


def run_app(
    config_name: str,
    job: Callable[[Any], Any],
    prepare: Callable[[list[str]], list[str]] | None = None,
    imports: Sequence[str] = (),
    folders: Sequence[Path] | None = None,
) -> None:
    """Run a Hydra application and show each UserError as one paragraph.

    A UserError ends its job, and the process then exits with code 2. In a multirun the other jobs go on, also after a bug in one of them.

    Args:
        config_name: the primary file, without its ending.
        job: the function that takes the composed configuration.
        prepare: a function that may rewrite the command line first, or None.
        imports: modules of the job that take seconds to import. Until they are imported, Ctrl-C ends the process at once.
        folders: folders of the configuration's files, the primary one in the first. None means conf/ alone.
    """
    if "--version" in sys.argv[1:]:  # Hydra would print its own
        from molgcn.training.provenance import versions

        print(f"molgcn {versions(['molgcn'])['molgcn'] or 'is not installed, and has no version'}")
        return
    failures: list[str] = []
    left: list[BrokenPipeError] = []
    before = signal.signal(signal.SIGTERM, terminate)
    end_on_interrupt()

    def guarded(config: DictConfig) -> Any:
        try:
            _import_all(imports)
            raise_on_interrupt()
            return job(config)
        except BrokenPipeError as error:
            left.append(error)
            return None
        except Exception as error:
            mistake = as_mistake(error)
            if mistake is not None:
                _print_mistake(mistake)
            elif HydraConfig.get().mode == RunMode.MULTIRUN:
                traceback.print_exc()
            else:
                raise
            failures.append(str(mistake or error))
            return None

    conf, *others = folders or [resource("conf")]
    arguments = sys.argv[1:]
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # exceptions reach us, and a real bug shows its whole traceback
    try:
        arguments, presets = own_presets(quote_texts(arguments))
        if not {"--help", "-h", "--hydra-help"} & set(arguments):
            check_overrides(arguments, conf, config_name, [*others, *presets])
        if prepare is not None:
            arguments = prepare(arguments)
        if {"--multirun", "-m"} & set(arguments):
            arguments = with_swept_groups(arguments, conf, config_name, [*others, *presets])
            raise_on_interrupt()  # its jobs may run in other processes, which must end first
        sys.argv[1:] = [*search_path(others), *arguments]
        hydra.main(version_base="1.3", config_path=str(conf), config_name=config_name)(guarded)()
        if left:
            raise left[0]
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does; Python must not fail again when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt as end:
        _show_sweep()
        print(_told("Interrupted", end), file=sys.stderr)
        exit_interrupted()
    except Terminated as end:
        _show_sweep()
        print(_told("Terminated", end), file=sys.stderr)
        raise
    except Exception as error:
        mistake = as_mistake(error)
        if mistake is None:
            raise
        _print_mistake(mistake)
        if is_killed_job(error):
            _show_sweep()
        sys.exit(MISTAKE)
    finally:
        signal.signal(signal.SIGTERM, before)
        raise_on_interrupt()
    if failures:
        sys.exit(MISTAKE)


def run_command(name: str, command: Callable[[Any], Any], cls: type, imports: Sequence[str] = ()) -> None:
    """Run a command that takes its keys as a dataclass; see :func:`run_app` for `name` and `imports`."""

    def job(config: DictConfig) -> None:
        from molgcn.config.run import parse

        values: Any = OmegaConf.to_container(config, resolve=True)
        if isinstance(values.get("on_error"), float):  # Hydra parses a bare nan as a float
            values["on_error"] = "nan"
        command(parse(cls, values))

    run_app(name, job, imports=imports)


def _import_all(modules: Sequence[str]) -> None:
    """Import modules while the garbage collector rests. It would take a sixth of a short run's time, and finds next to nothing.

    What the modules consist of stays until the process ends, so later collections leave it out too.
    """
    if all(module in sys.modules for module in modules):  # a later job of the same process
        return
    gc.disable()
    try:
        for module in modules:
            import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _show_sweep() -> None:
    """Show what a sweep has reached that ends before its last job; another Ctrl-C ends this too."""
    if sweep := sys.modules.get("molgcn.search.sweep"):  # Hydra has imported it for its callback where there is a sweep
        with suppress(KeyboardInterrupt):
            sweep.show_last_sweep()


def _told(how: str, end: BaseException) -> str:
    return " ".join([f"\n{how}.", *getattr(end, "__notes__", [])])


def _print_mistake(error: UserError) -> None:
    from molgcn.training.launched import launched

    if (found := launched()) is not None and found[0] > 0:  # the first process has met the same mistake, if it was not this one's alone
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(_TO_FIRST)
        error = UserError(f"In process {found[0] + 1} of {found[1]}: {error}")
    print(f"\nError: {error}", file=sys.stderr, flush=True)


def _prepare(arguments: list[str]) -> list[str]:
    from molgcn.search.tdc_benchmark import expand_sets
    from molgcn.training.launched import with_one_folder
    from molgcn.training.resume import prepare_resume

    arguments = with_one_folder(expand_sets(arguments))
    if values_of("launcher", arguments)[-1:] == ["submitit"] and shutil.which("srun") is None:
        raise UserError("launcher=submitit needs SLURM, and there is no srun here. Use launcher=joblib or hydra/launcher=submitit_local.")
    if any(argument.startswith("sweep=") for argument in arguments):
        from molgcn.search.search import prepare_search

        arguments = prepare_search(arguments)
    return prepare_resume(arguments)


@output_may_be_lost()  # here too, since jobs of a sweep may run in other processes
def _train_job(train: Train | None, config: DictConfig) -> float | None:
    from lightning.pytorch.utilities import rank_zero_only

    from molgcn.data.workers import end_with_parent
    from molgcn.training.gpus_of_job import take_gpus
    from molgcn.training.result import save_failure
    from molgcn.training.resume import holds_run

    context = HydraConfig.get()
    overrides, folder = list(context.overrides.task), Path(context.runtime.output_dir)
    if config.get("sweep") is not None:
        presets = [Path(source.path) for source in context.runtime.config_sources if source.provider == "command-line"]
        return _search(config, overrides, presets, folder)
    if context.mode == RunMode.MULTIRUN and context.runtime.choices["hydra/launcher"] == "joblib":
        end_with_parent()
        if config.trainer.accelerator != "cpu":
            take_gpus(context.job.num, config.trainer.devices, context.launcher.n_jobs)
    try:
        return _train(config, overrides, folder, train)
    except (KeyboardInterrupt, Terminated) as end:
        if holds_run(folder):
            end.add_note(f"Continue with {as_typed('resume', folder)}.")
        raise
    except Exception as error:
        if context.mode == RunMode.MULTIRUN:
            rank_zero_only(save_failure)(folder, overrides, as_mistake(error) or error)
        raise


def _train(config: DictConfig, overrides: list[str], folder: Path, train: Train | None) -> float | None:
    from lightning.pytorch.utilities import rank_zero_only

    from molgcn.config.run import Config, parse
    from molgcn.replicates.run import train_all
    from molgcn.training.resume import noted_overrides, saved_config

    if config.resume is None:
        run = parse(Config, run_values(config))
    else:
        run = parse(Config, saved_config(Path(config.resume), overrides))
        overrides = [*noted_overrides(folder), *(override for override in overrides if not override.startswith("resume="))]
    result = (train or train_all)(run, folder)
    rank_zero_only(result.save)(overrides)
    rank_zero_only(result.print)()
    return result.best_loss


def run_values(config: DictConfig) -> dict[str, Any]:
    """Return the composed configuration of a run as plain values, without the keys `paths` and `sweep`."""
    values: Any = OmegaConf.to_container(config, resolve=True)
    return {key: value for key, value in values.items() if key not in ("paths", "sweep")}


def _search(config: DictConfig, overrides: list[str], presets: list[Path], folder: Path) -> float | None:
    from molgcn.config.run import Config, parse
    from molgcn.search.search import SearchConfig, search

    settings: Any = OmegaConf.to_container(config.sweep, resolve=True)
    base = [override for override in overrides if not override.lstrip("+~").startswith("sweep.")]

    def compose(extra: list[str]) -> Config:
        check_overrides(extra, resource("conf"), "train", presets)
        return parse(Config, run_values(compose_config([*base, *extra], resource("conf"), "train", presets)))

    return search(parse(SearchConfig, settings, "sweep"), compose, folder, [override.lstrip("+").partition("=")[0] for override in base])
