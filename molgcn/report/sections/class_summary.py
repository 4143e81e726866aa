"""The section with the main metrics of a target with classes, and its labels in every part."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from molgcn.metrics.classes import METRICS
from molgcn.report.rendering import render
from molgcn.report.subject import PARTS
from molgcn.report.views import ClassView


def class_summary(view: ClassView) -> Markup:
    """Return the metrics in large print, or a sentence why there are none, and the number of labels of every class."""
    subject = view.subject
    sizes = np.bincount(view.true) if len(view.true) else np.zeros(1, int)
    counts = {
        PARTS[part]: (counts[view.place, : len(view.titles)].tolist(), subject.sizes[part] - int(counts[view.place].sum()))
        for part, counts in subject.class_counts.items()
        if counts.shape[1]
    }
    return render(
        "sections/class_summary.html.jinja",
        count=len(view.index),
        missing=len(subject.molecules) - len(view.index) - view.unpredicted,
        unpredicted=view.unpredicted,
        found={metric: subject.metrics[f"{subject.part}/{metric}/{view.name}"] for metric in METRICS},
        commonest=float(sizes.max() / max(len(view.index), 1)),
        counts=counts,
        titles=view.titles,
    )
