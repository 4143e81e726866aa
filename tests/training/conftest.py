"""Weights & Biases without its service."""

from collections.abc import Iterator

import pytest
from fake_wandb import FakeRun


@pytest.fixture
def no_wandb(no_wandb_key: None) -> Iterator[None]:
    """Forgets what the client keeps in the process, before and after."""
    import wandb

    wandb.teardown()  # forgets credentials that another test has loaded
    yield
    wandb.teardown()


@pytest.fixture
def wandb_runs(no_wandb: None, monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """In place of `wandb.init`, which would start a process: the list fills with the runs it started."""
    import wandb

    started: list[FakeRun] = []

    def init(**options):
        started.append(FakeRun(options))
        return started[-1]

    monkeypatch.setattr(wandb, "init", init)
    return started
