"""The message-passing layers, one file a layer."""
