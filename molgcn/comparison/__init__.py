"""Comparisons of a model's metrics: bootstrap intervals, baselines, means over targets, and decision thresholds."""
