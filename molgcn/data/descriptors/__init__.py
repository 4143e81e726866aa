"""Descriptors: numbers of a molecule that a model takes beside its graph, from columns, files or RDKit."""
