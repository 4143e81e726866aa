"""Networks on tiles of whole molecules, for the tests of blocks that take a tile through all layers."""

from stack_cases import changed, random_batch, random_inputs

from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import next_fit

SIZES = [5, 9, 18, 30, 1, 40, 64, 3]  # the last tile is not full
OPTIONS = [
    {"norm": "layer", "residual": True, "last_activation": True, "pool": "max", "dropout": 0.3, "training": True},
    {},
    {"residual": True, "pool": "sum", "last_activation": True},
    {"norm": "batch", "add_self_loops": False},
    {"norm": "layer"},
]


def make(hidden: int, num_layers: int, *, channels: int = 11, sizes: list[int] = SIZES, tile_nodes: int = 64, **options: object) -> GcnCall:
    """Return inputs with tiles, and the promise that no molecule is larger than a tile."""
    inputs = random_inputs(
        random_batch([min(size, tile_nodes) for size in sizes], channels, bonds_per_atom=1.2), hidden, num_layers, **options
    )
    tile_ptr = next_fit(inputs.graph.ptr, tile_nodes)
    return changed(inputs, strategy="layer", large_molecules=False, tile_nodes=tile_nodes, tile_ptr=tile_ptr)
