"""Splits into training, validation and test parts, with one file for each way to draw or read them."""
