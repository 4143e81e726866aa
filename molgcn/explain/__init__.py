"""Explanations of predictions: the contribution of each atom and bond of a molecule."""
