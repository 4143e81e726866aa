"""The texts with which tables show metrics."""

from __future__ import annotations

import math

_SPELLED = {"pearson": "Pearson", "spearman": "Spearman"}


def metric_title(metric: str) -> str:
    """Return a metric's name as tables show it: "MAE", "ROC AUC", "Pearson".

    Args:
        metric: The metric's name in files, such as "mae", "roc_auc" or "pearson".
    """
    return _SPELLED.get(metric, metric.replace("_", " ").upper())


def error_text(error: float) -> str:
    """Return an error with four significant digits, or "-" where it is undefined."""
    return "-" if math.isnan(error) else f"{error:.4g}"
