"""The distance of molecules from those that a model was trained on: similarity, unseen atoms and bonds, and size."""
