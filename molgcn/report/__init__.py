"""The report about a model: one HTML page that needs no other file."""
