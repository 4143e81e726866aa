"""The structs of arguments of the matrix product kernels, `cuda/product_*.cu`."""

from __future__ import annotations

from molgcn.cuda_runtime.structs import Header
from molgcn.ops.layer_network.layer_ends_cuda import LAYER_END

MAX_WEIGHTS = 128  # the most weights that one launch prepares
# Networks need 6 at most, but with room for 16, which leaves arguments under 4 KiB, captured steps took up to 2.9 % longer on an H200.
MAX_PRODUCTS = 64  # the most weight gradients that one launch computes

_OPERANDS = Header(
    "product_operands_structs.h",
    Weight=[
        ("const float*", "values second third"),  # weights of one shape, as many as there are
        ("float*", "fragments"),  # [columns / 16, rows / 16, 2, 32] float4, with the rows, or the columns, of all
        ("float*", "scales"),  # the scales of the operands' columns
        ("int", "rows columns"),  # the length of the contraction, and the columns of the result
        ("int", "row_step column_step"),  # strides of `values`
        ("int", "weights part"),  # how many; the distance between the columns of two that lie side by side, or 0 for rows that take turns
        ("int", "first_block"),
    ],
    Parameters=[("Weight", "weights[MAX_WEIGHTS]"), ("int", "num_weights")],
)
OPERANDS = _OPERANDS.ctype(MAX_WEIGHTS=MAX_WEIGHTS)

_ROWS = Header(
    "product_rows_structs.h",
    uses=LAYER_END,
    Result=[  # of a product
        ("const float*", "fragments scales"),  # the operands of the weight
        ("const float*", "bias add"),  # each may be null
        ("float*", "out kept"),  # kept: the product and its bias alone
        ("float*", "signs"),  # of the result, or in backward of the value whose gradient it is; see `signs_of` in product_finish.cuh
        ("int", "dropout_site"),
        ("float", "mask_scale"),
    ],
    Parameters=[
        ("const float*", "x"),
        ("Result", "middle last"),  # middle: of the first of two products
        ("LayerEnd", "before next"),  # what the rows are taken through first, and the norm that comes next, in backward
        # second: what `before` adds, in backward its norm's input, or the second of ARRAYS; next_source: the next norm's input
        ("const float*", "second third next_source"),
        ("const float*", "second_bias third_bias"),  # of PARTS
        ("float*", "second_out third_out"),
        ("float*", "written left"),  # what `before` gives; the parts that are left
        ("const float*", "first_signs"),  # in backward the signs by which the rows are then masked, and the dropout; see FIRST_MASK
        ("int", "first_site"),
        ("float*", "masked"),
        ("const int*", "rowptr col code"),  # of a gather: the Graph; code may be null
        ("const float*", "bond_rows eps"),  # each may be null
        ("float*", "gathered"),
        ("const int*", "atoms bonds"),  # `num_real` in quads.cuh
        ("const uint64*", "seed"),
        ("int", "num_rows backwards early"),  # backwards: tiles are computed from the last to the first; early: see early_launches.py
        ("uint32", "dropout_threshold"),
        ("float", "dropout_scale"),
    ],
)
ROWS, ROWS_RESULT = _ROWS.ctype(), _ROWS.ctype("Result")

_WEIGHTS = Header(
    "product_weights_structs.h",
    Product=[
        ("const float*", "gradient source"),  # G, x or null
        ("float*", "grad_weight grad_bias"),  # each may be null; of the first split, whose gradients lie one after another, with several
        ("const int*", "atoms bonds"),  # `num_real` in quads.cuh
        ("int", "num_rows out in num_tiles splits"),
        ("int", "first_block"),
    ],
    Parameters=[("Product", "products[MAX_PRODUCTS]"), ("int", "num_products")],
)
WEIGHTS = _WEIGHTS.ctype(MAX_PRODUCTS=MAX_PRODUCTS)
