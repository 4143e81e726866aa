"""The sections of the report about each target, in the order of the page.

A section is a function from a view to HTML, in a file of its own. It returns `Markup("")` where there is nothing to show. To add a section,
add a file here and an entry in one of the two lists below.
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
