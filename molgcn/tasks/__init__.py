"""What a network learns: one file a task."""
