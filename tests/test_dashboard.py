import sys

import pytest

from molgcn import dashboard
from molgcn.config.run import Config
from molgcn.errors import UserError
from molgcn.training.loggers import COLUMNS


def panels():
    return [panel for section in dashboard.build_workspace("team", "molgcn").sections for panel in section.panels]


def test_every_panel_shows_a_value_that_runs_log():
    shown = [panel.y[0].name if hasattr(panel.y[0], "name") else panel.y[0] for panel in panels()]
    assert set(shown) <= set(COLUMNS)
    assert {"train/loss", "val/loss"} | {name for name in COLUMNS if name.startswith("throughput/") and "atoms" not in name} <= set(shown)
    assert all(panel.title and panel.groupby_aggfunc == "mean" for panel in panels())


def test_runs_are_grouped_by_backend_as_wandb_stores_it():
    """The dashboard that would be sent groups by `backend.name`, a key of every run's configuration."""
    workspace = dashboard.build_workspace("team", "molgcn", "view")
    sent = workspace._to_model().model_dump(by_alias=True, exclude_none=True)
    assert (sent["entity"], sent["project"], sent["displayName"]) == ("team", "molgcn", "view")
    assert sent["spec"]["section"]["runSets"][0]["grouping"] == [{"section": "config", "name": "backend.value.name"}]
    section, key = dashboard.GROUP.split(".")
    assert key in Config.__dataclass_fields__[section].default_factory.__dataclass_fields__


@pytest.fixture
def logged_in(monkeypatch):
    monkeypatch.setattr("wandb.login", lambda **_: True)


def test_saving_prints_the_address(logged_in, monkeypatch, capsys):
    saved = []
    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.save", lambda self: saved.append((self.entity, self.project, self.name)))
    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.url", "https://address")
    dashboard.main(["team/molgcn", "--name", "mine"])
    assert saved == [("team", "molgcn", "mine")]
    assert capsys.readouterr().out == "https://address\n"


@pytest.mark.parametrize("target", ["molgcn", "a/b/c", "/molgcn", "team/"])
def test_a_project_of_another_form_is_named(target):
    with pytest.raises(UserError, match=r"is not a W&B project\. Expected entity/project"):
        dashboard.create(target)


def test_no_key_ends_in_one_paragraph(no_wandb_key, capsys):
    with pytest.raises(SystemExit) as stop:
        dashboard.main(["team/molgcn"])
    assert stop.value.code == 2
    assert "W&B has no API key here. Run `wandb login`" in capsys.readouterr().err


def test_a_refusal_of_the_service_is_passed_on(logged_in, monkeypatch):
    def refuse(self):
        raise ValueError("no such\n  entity")

    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.save", refuse)
    with pytest.raises(UserError, match=r"did not take the dashboard for team/molgcn: no such entity\. Check"):
        dashboard.create("team/molgcn")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[dashboard\]"):
        dashboard.create("team/molgcn")
