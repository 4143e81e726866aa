"""The closed table of sources: name in the configuration to the function that opens it."""

from collections.abc import Callable

from molgcn.data.config import DatasetConfig
from molgcn.data.sources.base import Source
from molgcn.data.sources.builtin import open_builtin
from molgcn.data.sources.csv import open_csv
from molgcn.data.sources.qm9 import open_qm9
from molgcn.data.sources.zinc import open_zinc

SOURCES: dict[str, Callable[[DatasetConfig], Source]] = {
    "builtin": open_builtin,
    "qm9": open_qm9,
    "zinc": open_zinc,
    "csv": open_csv,
}
