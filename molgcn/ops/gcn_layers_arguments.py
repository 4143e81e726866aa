"""The structs of arguments of `cuda/gcn_layer_*.cu`, `cuda/gcn_molecules_*.cu` and `cuda/gcn_chain_*.cu`."""

from __future__ import annotations

from molgcn.cuda_runtime.structs import Header
from molgcn.ops.gcn_layers_plan import LAYER_TABLES, MAX_TABLE

TABLES = (32, MAX_TABLE)  # lengths of the tables of layers' addresses


def table_size(num_layers: int) -> int:
    """Return the length of the shortest table that has room for the layers."""
    return next(size for size in TABLES if num_layers <= size)


_LAYER = Header(
    "gcn_layer_structs.h",
    Activation=[  # norm, relu and dropout of one layer
        ("const float*", "weight bias"),  # of the norm
        ("const float*", "mean variance"),  # running
        ("float*", "new_mean new_variance"),
        ("float*", "raw"),  # [N, width]: the norm's input
        ("float*", "moments"),  # 1 / deviation and mean: of an atom [N, 2] (layer), of a column [2, width] (batch statistics)
        ("unsigned char*", "masks"),  # [N, quads]: bit e: column 4 q + e is kept and, except with batch statistics, > 0
        ("float*", "sums"),  # [parts, 2 or kinds, width]: of tiles in backward; in the pooling of `atoms_per_part` atoms each
        ("float*", "grad_weight grad_bias grad_layer_bias"),
        ("int", "layer on"),  # on: norm, relu and dropout follow this layer
    ],
    Parameters=[
        ("const int*", "ptr rowptr col"),
        ("int4*", "sources"),  # [N]: sources of an atom's first four bonds
        ("float4*", "factors"),  # [N]: their entries of Â; 0 means no bond
        ("float*", "scale"),  # [N]: D^-1/2
        ("int*", "graph"),  # [N]: molecule of each atom
        ("const uint64*", "seed"),
        ("const float*", "input"),  # [N, in_width]: the layer's input; in the pooling the last output, or its residual part or null
        ("const float*", "gradient"),  # backward: [N, width], gradient of product and bias
        ("float*", "kept"),  # [N, width], written: in backward G = Â dZ, in the pooling the last layer's output
        ("const float*", "fragments"),  # the weight as operands of the product (gcn_layer_prepare.cu)
        ("const float*", "scales"),  # the scales of the operands' columns
        ("const float*", "bias"),
        ("const float*", "residual"),  # [N, width]: added to the output
        ("float*", "output"),  # [N, width], or null
        ("float*", "next_gradient"),  # backward: [N, width], the output's gradient taken through `out`, or null
        ("float*", "pooled largest ties"),  # [B, HIDDEN]; the last two are [B, width], for pool=max only
        ("const float*", "grad_pooled"),
        ("float*", "grad_x"),  # [N, F], written by the first layer with INPUT_GRADIENT
        ("int", "num_graphs num_nodes num_features in_width atoms_per_part"),
        ("uint32", "dropout_threshold"),
        ("float", "dropout_scale eps momentum"),
        ("Activation", "in out"),  # `in` is applied to the features that are aggregated, `out` to the result
    ],
)
Activation, Parameters = _LAYER.ctype("Activation"), _LAYER.ctype()

_LAYERS = Header(
    "gcn_molecules_structs.h",
    uses=_LAYER,
    Layers=[
        ("const int*", "tile_ptr"),  # [blocks + 1]: first molecule of each block
        ("int", "num_layers"),
        ("Parameters", "layers[MAX_LAYERS]"),  # in the order in which they are computed
    ],
)
LAYERS = {size: _LAYERS.ctype("Layers", MAX_LAYERS=size) for size in LAYER_TABLES}

_PREPARE = Header(
    "gcn_layer_prepare_structs.h",
    Parameters=[
        ("const int*", "ptr rowptr col"),
        ("int4*", "sources"),  # or null: already prepared
        ("float4*", "factors"),
        ("float*", "scale"),
        ("int*", "graph"),
        ("const float*", "x"),
        ("float*", "padded_x"),  # [N, in_width], or null: x is read as it is
        ("float*", "fragments"),
        ("float*", "scales"),  # [layers, scale_stride]: the scales of the operands' columns
        ("uint32*", "counters"),
        ("int", "num_graphs num_features in_width hidden num_layers scale_stride num_counters"),
        ("const float*", "weights[MAX_LAYERS]"),
    ],
)
PREPARE = {size: _PREPARE.ctype(MAX_LAYERS=size) for size in TABLES}

_WEIGHTS = Header(
    "gcn_layer_weights_structs.h",
    Parameters=[
        ("const int*", "ptr"),
        ("const float*", "first_input"),  # [N, in_width]: the input of layer 0
        ("const float*", "inputs"),  # [layers, N, width]: the inputs of layers `first_layer` and on; those of layer 0 are not read
        ("const float*", "gradients"),  # [layers, N, width]: G
        ("float*", "partial"),  # [splits, tiles, TILE * TILE]
        ("uint32*", "arrivals"),  # [tiles]
        ("int", "num_graphs num_nodes num_features in_width first_layer num_tiles splits atoms_per_split"),
        ("float*", "grad_weights[MAX_LAYERS]"),
    ],
)
WEIGHTS = {size: _WEIGHTS.ctype(MAX_LAYERS=size) for size in TABLES}

_CHAIN = Header(
    "gcn_chain_structs.h",
    Layer=[
        ("const float*", "bias norm_weight norm_bias"),
        ("const float*", "mean variance"),  # running
        ("float*", "grad_bias grad_norm_weight grad_norm_bias"),
    ],
    Parameters=[
        ("const int*", "ptr rowptr col"),
        ("const int4*", "sources"),  # [N]: sources of an atom's first four bonds
        ("const float4*", "factors"),  # [N]: their entries of Â; 0 means no bond
        ("const float*", "scale"),  # [N]: D^-1/2
        ("const int*", "graph"),  # [N]: molecule of each atom
        ("const uint64*", "seed"),
        ("const float*", "x"),  # [N, in_width]
        ("float*", "features"),  # [L, N, width]: the inputs of all layers except the first, and the output of the last
        ("float*", "raw"),  # [norms, N, width]: the norms' inputs
        ("float*", "moments"),  # [norms, 2, width]: 1 / deviation and mean
        ("unsigned char*", "masks"),  # [norms, N, quads]: bit e: dropout keeps column 4 q + e
        ("const float4*", "fragments"),  # the weights as operands of the product (gcn_layer_prepare.cu)
        ("const float*", "scales"),  # [L, width]: the scales of the operands' columns
        ("float*", "sums"),  # [2, clusters in whole 2 batches, 2, width]: two consecutive layers' sums, zeros at first
        ("uint32*", "arrivals"),
        ("float*", "new_mean new_variance"),  # [norms, HIDDEN]
        ("const float*", "grad_pooled largest ties"),
        ("float*", "outputs"),  # [2, N, width]: gradients of two layers' outputs
        ("float*", "gradients"),  # [L, N, width]: G = Â dZ
        ("float*", "grad_x"),
        ("int", "num_graphs num_nodes num_features in_width num_layers num_norms residual first_residual"),
        ("uint32", "dropout_threshold"),
        ("float", "dropout_scale eps momentum"),
        ("Layer", "layers[MAX_LAYERS]"),
    ],
)
CHAIN = {size: _CHAIN.ctype(MAX_LAYERS=size) for size in TABLES}
