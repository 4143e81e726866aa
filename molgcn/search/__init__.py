"""Compare several runs: sweeps over lists of values, and the hyperparameter search with Optuna."""
