"""The table of sources: for each value of `dataset.name` the function that opens it."""

from collections.abc import Callable

from molgcn.data.config import DatasetConfig
from molgcn.data.sources.base import Source
from molgcn.data.sources.builtin import open_builtin
from molgcn.data.sources.csv import open_csv
from molgcn.data.sources.joined import open_files
from molgcn.data.sources.ogb import open_ogb
from molgcn.data.sources.qm9 import open_qm9
from molgcn.data.sources.tdc import open_tdc
from molgcn.data.sources.zinc import open_zinc

SOURCES: dict[str, Callable[[DatasetConfig], Source]] = {
    "builtin": open_builtin,
    "qm9": open_qm9,
    "zinc": open_zinc,
    "csv": open_csv,
    "tdc": open_tdc,
    "ogb": open_ogb,
}


def open_source(config: DatasetConfig) -> Source:
    """Return the source of a configuration. Separate files for training, validation and test are one source."""
    opened = SOURCES[config.name]
    return open_files(opened, config) if len(config.files) > 1 else opened(config)
