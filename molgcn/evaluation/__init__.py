"""The parts of `python -m molgcn.evaluate`."""
