"""Paths of every kind survive the shell and Hydra; what would be left out in silence is refused."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.errors import UserError
from molgcn.overrides import as_typed, check_overrides, compose_config, quote, quote_paths, values_of
from molgcn.resources import resource

PATHS = ["a/b[1]", "a/${x}", "a/\\${x}", "it's ${b", "a b/$x", "{b}", "a\\b", "b\\", "a=b,(c)", "\u00e4", "\\\\${x}", "x${y}\\'"]


@pytest.mark.parametrize("path", PATHS)
def test_what_is_printed_means_the_path_when_it_is_typed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(path).mkdir(parents=True)
    (typed,) = quote_paths(shlex.split(as_typed("ckpt_path", Path(path))))
    assert compose_config([typed], resource("conf"), "train").ckpt_path == path
    assert values_of("ckpt_path", [typed]) == [path]


@given(st.text(st.sampled_from(list(r"""ab'\${}[]=,()" """)), min_size=1))
def test_a_quoted_text_is_that_text(text):
    assert values_of("key", [f"key={quote(text)}"]) == [text]


def test_an_interpolation_stays_one_where_no_file_has_its_name(tmp_path):
    assert quote_paths(["hydra.run.dir=runs/${now:%H}"]) == ["hydra.run.dir=runs/${now:%H}"]


@pytest.mark.parametrize("app", ["predict", "evaluate", "export"])
def test_two_checkpoints_are_not_one_of_them(app):
    with pytest.raises(UserError, match=r"ckpt=a and ckpt=b name ckpt 2 times.* Give it once"):
        check_overrides(["ckpt=a", "ckpt=b"], resource("conf"), app)
    check_overrides(["ckpt=a"], resource("conf"), app)
