"""From a trained model to predictions for files of any length."""
