"""Metrics of predictions: of numbers, of classes, their bootstrap intervals and their means over targets."""

from molgcn.metrics.regression import errors_of
from molgcn.metrics.text import error_text, metric_title

__all__ = ["error_text", "errors_of", "metric_title"]
