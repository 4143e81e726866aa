"""Metrics of predicted numbers and classes, and the form in which comparisons of them are kept."""

from molgcn.metrics.regression import errors_of
from molgcn.metrics.text import error_text, metric_title

__all__ = ["error_text", "errors_of", "metric_title"]
