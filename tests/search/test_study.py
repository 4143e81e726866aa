"""A study belongs to its settings and data, and refuses what cannot be compared with its trials."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Timer

import pytest
from studies import SPACE, study_in, trained

from molgcn.data.load import load_dataset
from molgcn.errors import UserError
from molgcn.search import study
from molgcn.search.search import SearchConfig
from molgcn.search.search import search as search_and_train
from molgcn.search.study import open_study

pytestmark = pytest.mark.usefixtures("blank_figures")
search = partial(search_and_train, train=trained)


def test_several_may_open_a_fresh_study(tmp_path, small_config):
    data = load_dataset(small_config().dataset)
    about = {"objective": "val/loss", "direction": "minimize", "space": {}}
    for folder in (tmp_path / name for name in "ab"):
        with ThreadPoolExecutor(4) as threads:
            opened = [threads.submit(open_study, folder, "optuna", about, small_config(), data) for _ in range(4)]
        assert {one.result().study_name for one in opened} == {"optuna"}


@pytest.mark.slow
def test_a_process_that_was_stopped_while_it_wrote_is_waited_for(tmp_path, compose, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(study, "PATIENCE", 0.05)
    search(SearchConfig(n_trials=1, params=SPACE), compose, tmp_path)
    writing = sqlite3.connect(tmp_path / "study.db", check_same_thread=False)
    writing.execute("BEGIN EXCLUSIVE")
    goes_on = Timer(1.0, writing.rollback)
    goes_on.start()
    search(SearchConfig(n_trials=2, params=SPACE), compose, tmp_path)
    goes_on.join()
    assert caplog.text.count("Waiting for another process that writes into the study") == 1
    assert len(study_in(tmp_path).trials) == 2


def test_a_study_of_other_settings_is_refused(tmp_path, compose, small_config):
    search(SearchConfig(n_trials=1, params=SPACE), compose, tmp_path)
    with pytest.raises(UserError, match=r"different: space.*sweep\.study="):
        search(SearchConfig(n_trials=2, params={"seed": [1, 2]}), compose, tmp_path)
    other = small_config(model={"hidden_channels": 4})
    with pytest.raises(UserError, match=r"different: model\.hidden_channels\)"):
        search(SearchConfig(n_trials=2, params=SPACE), lambda overrides: other, tmp_path)


@pytest.fixture
def on_a_file(tmp_path, compose):
    """Return a function that composes a configuration for a CSV that may be changed in place."""
    path = tmp_path / "x.csv"

    def write(sign=1):
        smiles = [f"{'C' * n}{end}" for n in range(1, 13) for end in ("F", "O")]
        path.write_text("smiles,y\n" + "".join(f"{text},{sign * len(text)}\n" for text in smiles))

    write()
    options = ["dataset.name=csv", f"dataset.path={path}", "dataset.targets=[y]", "dataset.features=general", "dataset.subset=null"]
    return lambda overrides: compose([*options, *overrides]), write


def test_a_study_of_other_data_is_refused(tmp_path, on_a_file):
    """The labels are negated in place, so that old trials say nothing about them."""
    composed, write = on_a_file
    search(SearchConfig(n_trials=1, params=SPACE), composed, tmp_path / "a")
    write(sign=-1)
    with pytest.raises(UserError, match=r"The data has changed since the study in .* \(hash \w{12}, now \w{12}\).*sweep\.study=") as error:
        search(SearchConfig(n_trials=2, params=SPACE), composed, tmp_path / "a")
    assert "\n" not in str(error.value)
    write()
    search(SearchConfig(n_trials=2, params=SPACE), composed, tmp_path / "a")
    assert len(study_in(tmp_path / "a").trials) == 2


def test_a_study_continues_with_keys_that_are_newer(tmp_path, compose):
    search(SearchConfig(n_trials=1, params=SPACE), compose, tmp_path)
    study = study_in(tmp_path)
    made_of = study.user_attrs["made_of"]
    del made_of["training"]["monitor"], made_of["dataset"]["group_duplicates"]
    study.set_user_attr("made_of", made_of)
    search(SearchConfig(n_trials=2, params=SPACE), compose, tmp_path)
    assert len(study_in(tmp_path).trials) == 2
