"""The sections that the report has of each target: functions from a view to HTML, one a file, in the order of the page.

A section returns nothing, `Markup("")`, where there is nothing to show. A new one is a file beside these and an entry in a list.
"""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from molgcn.report.sections.by_scaffold import by_scaffold
from molgcn.report.sections.by_size import by_size
from molgcn.report.sections.class_summary import class_summary
from molgcn.report.sections.curves import curves
from molgcn.report.sections.decisions import decisions
from molgcn.report.sections.least_likely import least_likely
from molgcn.report.sections.number_summary import number_summary
from molgcn.report.sections.parity import parity
from molgcn.report.sections.worst import worst
from molgcn.report.views import ClassView, NumberView

OF_NUMBERS: tuple[Callable[[NumberView], Markup], ...] = (number_summary, parity, by_size, by_scaffold, worst)
OF_CLASSES: tuple[Callable[[ClassView], Markup], ...] = (class_summary, curves, decisions, least_likely)
