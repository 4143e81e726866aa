"""What a model's metrics are read beside: bootstrap intervals, baselines, means over targets, and thresholds of classes."""
