"""Explanations of predictions: the contributions of the atoms, bonds and descriptors of a molecule."""
