"""Predictions and fingerprints of trained models for files of any length."""
