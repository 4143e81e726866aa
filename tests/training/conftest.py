"""Replace the service of Weights & Biases."""

from collections.abc import Iterator

import pytest
from fake_wandb import FakeRun


@pytest.fixture
def no_wandb(no_wandb_key: None) -> Iterator[None]:
    """Reset the client's state in the process, before and after a test."""
    import wandb

    wandb.teardown()  # forgets credentials that another test has loaded
    yield
    wandb.teardown()


@pytest.fixture
def wandb_runs(no_wandb: None, monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """Replace `wandb.init`, which would start a process, and return the list of started runs."""
    import wandb

    started: list[FakeRun] = []

    def init(**options):
        started.append(FakeRun(options))
        return started[-1]

    monkeypatch.setattr(wandb, "init", init)
    return started
