"""The tasks that a network can learn, one file each, with their losses, metrics and outputs."""
