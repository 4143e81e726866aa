from collections.abc import Iterator

import pytest
import torch
from repeated_graphs import RepeatedGraphs

from molgcn.training.steps import graphs


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a device on which steps are captured: a GPU, or a CPU on which work is done again in place of a replay."""
    if request.param == "cpu":
        monkeypatch.setattr(graphs, "Graphs", RepeatedGraphs)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def replays(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Give a list that grows with the key of every replay."""
    found: list[object] = []
    for kind in (graphs.Graphs, RepeatedGraphs):
        run = kind.run

        def counted(self: graphs.Graphs, key: object, work: object, run: object = run) -> object:
            found.append(key)
            return run(self, key, work)  # type: ignore[operator]

        monkeypatch.setattr(kind, "run", counted)
    return found
