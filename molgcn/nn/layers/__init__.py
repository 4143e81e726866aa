"""The message-passing layers, one file per layer."""
