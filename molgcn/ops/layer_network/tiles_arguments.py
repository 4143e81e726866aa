"""The struct of arguments of the tile kernel, `cuda/tile_network.cu`."""

from __future__ import annotations

from molgcn.cuda_runtime.structs import Header

OPS = (
    *("load", "store", "put", "take", "add", "sync", "fetch", "linear", "gather", "finish", "normalize", "pool"),
    *("pool_grad", "finish_grad", "mask", "normalize_grad", "gather_grad", "eps_grad", "table_grad"),
)
"""The operations of instructions; :class:`molgcn.ops.layer_network.tiles_program.Instruction` describes them."""

MAX_CLEARED = 2  # the most rows that one launch clears beyond a batch's last atom or bond

_NETWORK = Header(
    "tile_network_structs.h",
    lists={"OPS": OPS},
    Instruction=[
        ("int", "op"),
        ("int", "slot"),  # rows in shared memory
        ("int", "next"),  # the instruction of the next product
        ("int", "width"),  # columns of the result, or of the rows in global memory
        ("int", "chunks_in chunks_out"),  # of a product's input and output: chunks of 16 columns
        ("int", "kind activation site"),  # of a norm; what follows; the dropout or -1
        ("int", "sums"),  # where the warp's sums for a gradient begin
        ("float", "scale"),  # of a mask
        ("float*", "rows"),  # rows in global memory that are loaded, stored or pooled
        ("float*", "out"),  # the gradient of the bonds' rows where each bond has one, or null
        ("const float*", "weight bias"),  # a product's operand, a norm's weight or a gather's eps; a bias; each may be null
        ("const float*", "more extra"),  # running mean and variance, or bonds' rows and gradients to add
    ],
    Cleared=[("float*", "rows"), ("const int*", "atoms bonds"), ("int", "num_rows width")],  # `num_real` in quads.cuh
    Parameters=[
        ("const int*", "ptr rowptr col code tile_ptr"),
        ("const int*", "paired"),  # [bonds]: row of each bond's reverse, in a backward pass
        ("const uint64*", "seed"),
        ("uint32", "dropout_threshold"),
        ("float", "dropout_scale norm_eps"),
        ("int", "num_tiles num_slots num_codes num_sums num_instructions num_cleared"),
        ("int", "first_linear"),  # the instruction of the first product, or -1
        ("float*", "sums"),  # [warps, num_sums]
        ("Cleared", "cleared[MAX_CLEARED]"),
        ("Instruction", "instructions[MAX_INSTRUCTIONS]"),
    ],
)


def network_type(max_instructions: int) -> type:
    """Return the struct of a launch that has room for so many instructions."""
    return _NETWORK.ctype(MAX_INSTRUCTIONS=max_instructions, MAX_CLEARED=MAX_CLEARED)
