"""The sets that `dataset.set` names, of each data set that is a benchmark of several sets."""

from collections.abc import Mapping

from molgcn.data.ogb_sets import OGB_SETS, OgbSet
from molgcn.data.tdc_sets import TDC_SETS, TdcSet

BENCHMARK_SETS: dict[str, Mapping[str, TdcSet | OgbSet]] = {"tdc": TDC_SETS, "ogb": OGB_SETS}
