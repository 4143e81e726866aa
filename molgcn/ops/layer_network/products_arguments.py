"""The structs of arguments of the matrix product kernels, `cuda/product_*.cu`."""

from __future__ import annotations

from molgcn.cuda_runtime.structs import Header

MAX_WEIGHTS = 64  # the most weights that one launch prepares
MAX_PRODUCTS = 32  # the most weight gradients that one launch computes

_OPERANDS = Header(
    "product_operands_structs.h",
    Weight=[
        ("const float*", "values"),
        ("float*", "fragments"),  # [columns / 16, rows / 16, 2, 32] float4
        ("float*", "scales"),  # the scales of the operands' columns
        ("int", "rows columns"),  # the length of the contraction, and the columns of the result
        ("int", "row_step column_step"),  # strides of `values`
        ("int", "first_block"),
    ],
    Parameters=[("Weight", "weights[MAX_WEIGHTS]"), ("int", "num_weights")],
)
OPERANDS = _OPERANDS.ctype(MAX_WEIGHTS=MAX_WEIGHTS)

_ROWS = Header(
    "product_rows_structs.h",
    Norm=[  # the batch norm that follows, with batch statistics
        ("float*", "moments"),  # [2, OUT]: mean and 1 / deviation
        ("const float*", "mean variance"),  # running
        ("float*", "new_mean new_variance"),
        ("float*", "partial group_sums"),  # [blocks or groups, part_numbers], see product_moments.cuh
        ("uint32*", "arrivals"),  # [groups + 1]
        ("int", "blocks_per_group"),
        ("float", "eps momentum"),
    ],
    Parameters=[
        ("const float*", "x"),
        ("const float*", "fragments scales"),  # the operands of the weight
        ("const float*", "bias add mask"),  # each may be null
        ("float*", "out"),
        ("const int*", "atoms bonds"),  # `num_real` in quads.cuh
        ("const uint64*", "seed"),
        ("int", "num_rows dropout_site"),
        ("uint32", "dropout_threshold"),
        ("float", "dropout_scale mask_scale"),
        ("Norm", "norm"),
    ],
)
ROWS = _ROWS.ctype()

_WEIGHTS = Header(
    "product_weights_structs.h",
    Product=[
        ("const float*", "gradient source"),  # G, x or null
        ("float*", "grad_weight grad_bias"),  # each may be null
        ("const int*", "atoms bonds"),  # `num_real` in quads.cuh
        ("float*", "partial"),  # [tiles, splits + groups, partial_size]
        ("uint32*", "arrivals"),  # [tiles, groups + 1]
        ("int", "num_rows out in first_block num_tiles splits rows_per_split splits_per_group"),
    ],
    Parameters=[("Product", "products[MAX_PRODUCTS]"), ("int", "num_products")],
)
WEIGHTS = _WEIGHTS.ctype(MAX_PRODUCTS=MAX_PRODUCTS)
