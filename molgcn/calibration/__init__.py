"""Calibration of predicted uncertainties: methods that are fitted on molecules set aside for it, and measures of the result."""
