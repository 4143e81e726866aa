"""Training steps and predictions in a loop of a user's own, as CUDA graphs where they can be: `molgcn.capture`."""
