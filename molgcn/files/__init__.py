"""Files that a run writes and reads: written whole or not at all, and read as plain values."""
