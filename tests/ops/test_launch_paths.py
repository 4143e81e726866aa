"""The paths that compute-sanitizer follows launch every kernel, in every variant that the schedule chooses."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from compiler import needs_extension
from launch_paths import FEW, MANY, PATHS, network
from layer_network_cases import NETWORKS, options_of, random_call
from stack_cases import H100

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by
from molgcn.ops.layer_network.tiles_plan import why_not
from molgcn.resources import resource

pytestmark = needs_extension

# Macros that are sizes, or choose between formulas; of some only matters whether there are several.
_SIZES = """
ACTIVATION BEFORE_ACTIVATION BUFFER CHANNELS CHUNKS CLUSTER COLUMNS COLUMN_TILES GROUP_HEADS HEADS HIDDEN IN IN_GROUPS LANES LANE_QUADS
LAYERS MAX_BUFFERS MAX_CLEARED MAX_GROUPS MAX_INSTRUCTIONS MAX_LAYERS MAX_PRODUCTS MAX_SUMS MAX_TENSORS MAX_THREADS MAX_WEIGHTS MIDDLE_TILES
MIN_BLOCKS MORE_IN MORE_OUT NEXT_ACTIVATION NORMS OUT OUT_BLOCKS PART PIECE PLANES REPEATS ROW_GROUPS SIDE SLICES STAGES TARGETS TEAMS
THREADS TILE TILES VECTOR WARP_COLUMNS WARP_ROWS
"""
SIZES = set(_SIZES.split())
SEVERAL = {"MIDDLE", "GROUPS", "ARRAYS", "PARTS", "WARPS"}


class Recorder(Launcher):
    """A launcher that notes the kernels that are launched, with each macro that chooses code."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str, int]] = set()

    def gpu(self, device: object) -> Gpu:
        return Gpu(132, H100, has_clusters=True, has_warpgroups=True, cache_bytes=50 * 2**20)

    def kernel(self, source: str, name: str, defines: Mapping[str, int], device: object = None, prefetch: object = None) -> Any:
        chosen = {macro: int(value > 1) if macro in SEVERAL else value for macro, value in defines.items() if macro not in SIZES}

        def launch(*_: object, **__: object) -> None:
            self.found |= {(name, "", 0), *((name, macro, value) for macro, value in chosen.items())}

        return SimpleNamespace(launch=launch, resident_blocks=lambda *_: 132)


@pytest.fixture(scope="module")
def found() -> set[tuple[str, str, int]]:
    recorder = Recorder()
    with launching_by(recorder), torch.no_grad():
        for path in PATHS.values():
            path("cpu")
    return recorder.found


def test_every_kernel_is_launched(found):
    sources = (path.read_text() for path in resource("cuda").glob("*.cu"))
    kernels = {name for source in sources for name in re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(const", source)}
    assert len(kernels) > 50
    assert kernels - {name for name, _, _ in found} == {"collate"}  # the loader launches it, on a GPU alone


VARIANTS = {
    "product_rows": ["WARPGROUPS", "RESIDENT", "GATHER", "MIDDLE", "BESIDE", "ARRAYS", "PARTS", "GROUPS", "FIRST_MASK", "MOMENTS", "SUMS"],
    "gcn_tile_forward": ["LOSS", "MERGED_LEAVES", "LARGE_MOLECULES", "WIDE_INPUT", "SHARED_WEIGHTS", "SAVE"],
    "gcn_tile_backward": ["LOSS", "MERGED_LEAVES", "LARGE_MOLECULES", "WIDE_INPUT", "SHARED_GRADIENTS", "DROPOUT"],
    "rows_gather_grad": ["TABLE", "LEAVES", "DOUBLE", "BONDS"],
    "rows_attend": ["V2", "LEAVES", "CONCAT"],
    "tile_network": ["BACKWARD", "NORMALIZE"],
}


@pytest.mark.parametrize(("kernel", "macro"), [(kernel, macro) for kernel, macros in VARIANTS.items() for macro in macros])
def test_a_variant_is_launched_and_its_opposite(found, kernel, macro):
    assert {value for name, its, value in found if (name, its) == (kernel, macro)} >= {0, 1}


def test_asynchronous_products_are_launched(found):
    assert {("product_weights", "", 0), ("product_weights_async", "", 0)} < found


def grid() -> Iterator[Any]:
    options = ({}, {"coded": False}, {"training": False, "kinds": 40}, {"recompute": True}, {"precision": "bf16"}, {"dtype": torch.float64})
    for name, hidden, sizes, own in product(NETWORKS, (12, 64, 176, 300), (FEW, MANY), options):
        if hidden < 300 or "dtype" not in own:
            yield name, hidden, "rows", sizes, own
        of_call = {option: value for option, value in own.items() if option not in ("recompute", "precision")}
        if hidden < 300 and why_not(random_call(options_of(name, hidden), sizes=sizes, **{"dtype": torch.float32, **of_call})) is None:
            yield name, hidden, "tiles", sizes, own


@pytest.mark.slow
def test_no_network_launches_another_variant(found):
    recorder = Recorder()
    with launching_by(recorder), torch.no_grad():
        for name, hidden, kernels, sizes, options in grid():
            network(name, hidden, kernels, sizes, "cpu", **dict(options))
    assert not recorder.found - found
