"""HTML from Jinja templates, which escape everything that came from a file."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from molgcn.errors import counted


def render(template: str, package: str = "molgcn.report", **values: Any) -> Markup:
    """Return the HTML of a template with values filled in. `template` is its path below the package."""
    return Markup(_environment(package).get_template(template).render(values))  # the environment escapes


def number(value: float, digits: int = 4) -> str:
    """Return a number as text with some significant digits; a dash where it is not finite."""
    return f"{value:.{digits}g}".replace("-", "\u2212") if math.isfinite(value) else "\u2013"


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "count": lambda value: f"{value:,}", "counted": counted}
    return environment
