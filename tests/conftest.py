import gc
import importlib.metadata
import logging
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from figures import blank_figures as blank_figures
from figures import empty_figures as empty_figures
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

SMALL: dict[str, dict[str, Any]] = {
    "dataset": {"name": "builtin", "targets": ["logp"], "subset": 300, "batch_size": 32, "features": "zinc"},
    "model": {"hidden_channels": 8, "num_layers": 2, "last_activation": False, "head_layers": 0},
    "backend": {"name": "auto"},
    "trainer": {"max_epochs": 2, "accelerator": "cpu", "log_every_n_steps": 3, "num_sanity_val_steps": 0, "enable_model_summary": False},
    "logger": {"name": "csv"},
    "training": {"checkpoint_seconds": 60, "report": False},
}

# Threads that wait spin by default, for as long as a small step takes: on a machine that does other work too, tests then take ten times
# as long. PyTorch reads this when it is first imported. NumPy's threads spin whatever one says, also for a matrix of 50 rows.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes depends on what else the machine does. CI (which sets CI) tries the same examples each time, so that what it
# says is about the change; elsewhere each run tries others.
for name, examples in (("fast", 50), ("all", 200)):
    settings.register_profile(name, deadline=None, derandomize="CI" in os.environ, max_examples=examples)


NO_GPU = "There is no CUDA GPU, so the tests that need one were not collected; --gpu collects and skips them."
_left_out = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="collect the tests that need a CUDA GPU also where there is none")


def pytest_configure(config: pytest.Config) -> None:
    """Try more examples of each property where slow tests run too.

    Each Trainer looks for entry points in all installed packages, which are the same as long as `sys.path` is. Lightning takes the function
    that looks when tests are collected.
    """
    settings.load_profile("fast" if "not slow" in config.getoption("markexpr") else "all")
    entry_points = importlib.metadata.entry_points
    found = cache(lambda path, **wanted: entry_points(**wanted))
    importlib.metadata.entry_points = lambda **wanted: found(tuple(sys.path), **wanted)


def _leaves_out(config: pytest.Config) -> bool:
    """Return whether tests marked `gpu` are left out."""
    if _left_out not in config.stash:
        import torch

        config.stash[_left_out] = not config.getoption("gpu") and not torch.cuda.is_available()
    return config.stash[_left_out]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests are all marked `gpu`."""
    return True if collection_path.name.endswith("_gpu.py") and _leaves_out(config) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Import as train.py does, and look for no garbage among what is imported and collected, which stays, nor in later collections.

    These come after more allocations than by default, since tests that build networks and configurations keep most of what they make.
    """
    gc.disable()
    gc.set_threshold(10_000)
    import_module("molgcn.training.torchmetrics_import")
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other tests marked `gpu`, or skip them if they were asked for and cannot run."""
    import torch

    if _leaves_out(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    elif not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn from a worker of pytest-xdist what it left out."""
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get("left_out", False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _leaves_out(session.config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash.get(_left_out, False):
        terminalreporter.write_line(NO_GPU)


def _seed() -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Make fixtures from the same random numbers, whichever tests ran before."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Start every test from the same random numbers, whichever fixtures were made for it."""
    _seed()


@pytest.fixture(scope="module", autouse=True)
def freeze_garbage_collection() -> None:
    """Leave what is imported out of garbage collections. Every training starts with one, which would take up to half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Turn W&B off, and give all tests and the processes they start one private cache of packed sets.

    Hydra reads conf/ hundreds of times, which libyaml's parser does in a third of the time of the one in Python that OmegaConf takes.
    Where there are no accelerators, each call of `torch.manual_seed` would note the whole stack three times for those to come.
    """
    import torch

    with pytest.MonkeyPatch.context() as patch:
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                patch.setattr(device, "manual_seed_all", lambda seed: None)
        patch.setattr(yaml, "SafeLoader", yaml.CSafeLoader)
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HYDRA_FULL_ERROR", "1")
        yield


@pytest.fixture(autouse=True)
def deterministic_algorithms() -> Iterator[None]:
    """Turn deterministic algorithms off again, which a Trainer leaves on, so that later tests may use atomic additions."""
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    yield
    if torch.are_deterministic_algorithms_enabled() != before[0]:  # setting it imports torch._dynamo
        torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run tests with one thread: on a busy machine tiny batches wait for theirs. Other tests check several threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `python train.py` (or `python -m <module>`) in `tmp_path` and captures its output as text."""

    def run(*arguments: str, module: str | None = None, timeout: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
        program = [str(ROOT / "train.py")] if module is None else ["-m", module]
        return subprocess.run(
            [sys.executable, *program, *arguments],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "160", **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def no_wandb_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide W&B's key, its configured mode and the network, whatever the machine has."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # no server listens there


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """Return a context in which no file can grow beyond a number of bytes; writing fails as on a full disk, with another reason."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command in this process in `tmp_path`, and returns exit code, output and error output.

    Another process, see `run_cli`, takes five seconds to import what it needs.
    """
    from hydra.core.global_hydra import GlobalHydra

    from molgcn.cli import main as main_of_train

    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, main: Callable[[], None] = main_of_train) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        GlobalHydra.instance().clear()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            logging.getLogger().handlers.clear()  # Hydra's handlers write to this run's streams
        return code, *capfd.readouterr()

    return run


@pytest.fixture(scope="session")
def small_config() -> Callable[..., Any]:
    """Return a function that makes a configuration; `small_config(model={"dropout": 0.1}, seed=1)` changes single keys."""
    from molgcn.config.run import Config, parse

    def make(**changes: Any) -> Config:
        values: dict[str, Any] = {key: dict(value) for key, value in SMALL.items()}
        for key, change in changes.items():
            values[key] = {**values.get(key, {}), **change} if isinstance(change, dict) else change
        return parse(Config, values)

    return make


@pytest.fixture(scope="session")
def trained_config() -> dict[str, object]:
    """Return a configuration that trains in a second, with 200 built-in molecules, two targets and three narrow layers."""
    return {
        "dataset": {"name": "builtin", "targets": ["logp", "tpsa"], "features": "qm9", "subset": 200, "batch_size": 32},
        "model": {"hidden_channels": 8, "num_layers": 3, "last_activation": False, "head_layers": 0},
        "optimizer": {"lr": 0.01},
        "logger": {"name": "csv"},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }


@pytest.fixture(scope="session")
def trained_run(trained_config: dict[str, object], tmp_path_factory: pytest.TempPathFactory):
    """Return the result of one short training run with a complete folder, which tests must not change."""
    from molgcn.config.run import Config, parse
    from molgcn.training.train import train

    folder = tmp_path_factory.mktemp("runs") / "small"
    result = train(parse(Config, trained_config), folder)
    result.save([])
    return result
