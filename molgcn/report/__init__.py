"""What a person reads about a model: one HTML page, complete in itself."""
