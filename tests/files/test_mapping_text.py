"""Mappings by column survive the shell, Hydra and the configuration, whatever the columns are called."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from molgcn.config.overrides import parse_override, quote_texts
from molgcn.config.run import parse
from molgcn.data.target_config import TargetConfig
from molgcn.files.mapping_text import read_mapping, typed_mapping

WORDS = ["null", "yes", "1", "1.50", "a b", "${", "${x}"]
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1) | st.sampled_from(WORDS)


def units_of(argument):
    """Return the units that an argument of the command line gives."""
    (typed,) = quote_texts([argument])
    config = OmegaConf.create({"units": parse_override(typed).value()})
    return parse(TargetConfig, OmegaConf.to_container(config, resolve=True)).units


@given(st.dictionaries(TEXTS, TEXTS, min_size=1))
def test_what_is_printed_means_the_mapping_when_it_is_typed(mapping):
    (argument,) = shlex.split(typed_mapping("dataset.units", mapping))
    assert units_of(argument) == mapping


@pytest.mark.parametrize(
    ("typed", "units"),
    [
        ('{"Solubility (uM)": uM}', {"Solubility (uM)": "uM"}),
        ("{'Löslichkeit [µM]': µM, y: nM}", {"Löslichkeit [µM]": "µM", "y": "nM"}),
        ("{Solubility (uM): uM}", {"Solubility (uM)": "uM"}),
        (r"{Solubility\ \(uM\): uM}", {"Solubility (uM)": "uM"}),  # Hydra's own way
        ("{y: nM}", {"y": "nM"}),
    ],
)
def test_ways_to_type_a_mapping(typed, units):
    assert units_of(f"dataset.units={typed}") == units


def test_nested_mappings_and_missing_values():
    assert read_mapping('{"a b": {"n/a": null, yes: 1, "null": 0}}') == {"a b": {"n/a": None, "yes": "1", "null": "0"}}


@pytest.mark.parametrize("text", ["a", "[a]", "{a", "{[1, 2]: b}", "{" * 2000])
def test_what_is_no_mapping(text):
    assert read_mapping(text) is None
