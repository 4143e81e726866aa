"""Uncertainties that keep their word: methods that are fitted on molecules of their own, one file each, and how they are measured."""
