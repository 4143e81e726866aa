from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from molgcn.data.config import NAMES, DatasetConfig
from molgcn.errors import UserError

CONF = Path(__file__).parents[2] / "conf" / "dataset"


@pytest.mark.parametrize("name", NAMES)
def test_every_yaml_is_a_valid_configuration_with_all_keys_commented(name):
    text = (CONF / f"{name}.yaml").read_text()
    mapping = yaml.safe_load(text)
    assert DatasetConfig(**mapping).name == name
    assert set(mapping) == {field.name for field in fields(DatasetConfig)}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        assert line.startswith("#") or lines[number - 1].startswith("#"), line


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"name": "qm8"}, "Did you mean 'qm9'"),
        ({"split": "scafold"}, "Did you mean 'scaffold'"),
        ({"on_error": "ignore"}, "raise, skip"),
        ({"features": "ecfp"}, "qm9, zinc, general"),
        ({"targets": []}, "empty"),
        ({"targets": ["gap", "gap"]}, "twice"),
        ({"subset": 0}, "positive number"),
        ({"subset": "12k"}, "positive number"),
        ({"subset": True}, "positive number"),
    ],
)
def test_mistakes_name_the_key_and_what_it_takes(options, what):
    with pytest.raises(UserError, match=what):
        DatasetConfig(**options)


def test_values_are_normalised():
    config = DatasetConfig(name="zinc", targets="gap", subset="full", split_fractions=[1, 1, 1])
    assert (config.targets, config.subset, config.split_fractions) == (["gap"], None, (1.0, 1.0, 1.0))
    assert DatasetConfig(name="zinc", subset="12k").subset == "12k"
    assert DatasetConfig(subset="500").subset == 500
