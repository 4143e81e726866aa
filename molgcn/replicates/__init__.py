"""Several trainings as one run: cross-validation, repeated splits and ensembles."""
