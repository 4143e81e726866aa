"""The size of the parts of a norm's moments or sums that the blocks of one launch leave and those of the next one merge."""

from __future__ import annotations

MOST_PARTS = 256  # the most parts that a launch leaves in a batch of few atoms


def part_columns(width: int) -> int:
    """Return the columns of each half of a part: `padded_columns` in cuda/layer_end.cuh."""
    return -(-width // 16) * 16


def part_numbers(width: int) -> int:
    """Return the numbers of a part: `part_numbers` in cuda/layer_end.cuh."""
    return 2 * part_columns(width) + 4


def merge_numbers(threads: int, columns: int) -> int:
    """Return the numbers of shared memory in which a block merges parts: `merge_numbers` in cuda/layer_end.cuh."""
    return 9 * max(threads, columns // 4) + columns
