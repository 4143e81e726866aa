import pytest

from molgcn.data.config import DatasetConfig
from molgcn.errors import UserError


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
