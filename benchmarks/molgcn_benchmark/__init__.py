"""Measure backends and loaders side by side."""
