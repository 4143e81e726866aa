"""Several runs side by side: sweeps over lists of values, and the search with Optuna."""
