"""Conversion of other programs' models into runs."""
