import pytest

from molgcn.config.overrides import parse_override
from molgcn.config.run import Config, parse


@pytest.fixture
def compose(small_config):
    """Return a function that applies overrides to the small configuration as the command line does."""

    def make(overrides):
        values = small_config().to_dict()
        for override in overrides:
            parsed = parse_override(override)
            *path, leaf = parsed.key_or_group.split(".")
            node = values
            for name in path:
                node = node[name]
            node[leaf] = parsed.value()
        return parse(Config, values)

    return make
