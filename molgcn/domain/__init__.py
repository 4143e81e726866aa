"""How far molecules are from those that a model was trained on: similarity, atoms and bonds never seen, size."""
