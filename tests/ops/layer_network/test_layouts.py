"""The memory of a training step stays within stated shares of what PyG takes."""

from pathlib import Path

import pytest

from molgcn.data import PackedMolecules
from molgcn.nn.fused_call import layer_call
from molgcn.ops.layer_network.backward import backward_of
from molgcn.ops.layer_network.gradient_steps import GradStep, Produced
from molgcn.ops.layer_network.kept_in_part import signs_alone, summed_values
from molgcn.ops.layer_network.layouts import Sizes, backward_layout, launches_layout, saved_layout, scratch_layout
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import BONDS, Step, X
from molgcn.ops.layer_network.tiles_plan import LAYERS_OF_LAUNCH
from molgcn.ops.layer_network.tiles_program import again_passes, backward_passes
from molgcn_benchmark.family import KEY, network
from molgcn_benchmark.family import NETWORKS as FAMILY
from molgcn_benchmark.results import Table

SIZES = Sizes(94_652, 3, 204_800)  # 4,096 molecules of ZINC, whose bonds are of three kinds
MEASURED = Table(Path(__file__).parents[3] / "benchmarks/results/family_cuda.csv", KEY)


def megabytes(program: Program, *, recompute: bool, tiles: bool) -> float:
    """Return the most memory that the rows of a step take: the first layer's input, what forward keeps, and what one pass needs."""
    sizes = SIZES if tiles else SIZES._replace(summed=summed_values(program))
    sizes = sizes if recompute or tiles else sizes._replace(signs_alone=signs_alone(program))
    together = LAYERS_OF_LAUNCH if tiles and not recompute else 1
    backward = backward_of(program, True, program.edge_channels is not None, together, recompute, by_round=not tiles)
    made = backward_layout(program, backward, sizes)
    if tiles:
        passes = zip(again_passes(program, backward), backward_passes(program, backward, coded=True), strict=True)
        made = launches_layout(program, backward, sizes, [again.touched | each.touched for again, each in passes])
    forward = 0 if tiles else scratch_layout(program, backward.kept, sizes).size
    kept = saved_layout(program, backward.kept, sizes).size + sizes.numbers(program, 0)
    return 4 * (kept + max(made.size, forward)) / 2**20


@pytest.fixture(scope="module")
def molecules():
    return PackedMolecules.from_smiles(["CCO", "C=O", "C#N"], features="zinc")


@pytest.mark.parametrize(
    ("name", "share", "recomputed"),
    [
        ("GIN+ 12 x 80", 0.77, 0.19),
        ("GCN+ 12 x 64", 0.82, 0.19),
        ("GINE 12 x 64", 0.60, 0.22),
        ("GIN 16 x 124", 0.67, 0.29),
        ("SAGE 16 x 100", 0.78, 0.32),
        ("GINE 5 x 300", 0.64, 0.32),
        ("gin 12 x 64, layer norm", 0.77, 0.30),
        ("gine 12 x 64, layer norm", 0.66, 0.21),
        ("gcn_edge 12 x 64, layer norm", 0.69, 0.26),
        ("sage 12 x 64, layer norm", 0.82, 0.31),
    ],
)
def test_memory_of_a_step_beside_pyg(molecules, name, share, recomputed):
    program = layer_call(network(name, molecules).on_backend("fused").eval(), molecules.batch(range(3))).program
    row = MEASURED.find(network=name, device="cuda", work="forward_backward", batch_size=4096, precision="highest")
    tiles = FAMILY[name][3].get("norm") == "layer"
    for wanted, recompute in ((share, False), (recomputed, True)):
        assert megabytes(program, recompute=recompute, tiles=tiles) <= wanted * row["pyg_mb"]


@pytest.mark.parametrize("name", ["D-MPNN 3 x 300", "GatedGCN+ 9 x 70"])
def test_gradients_take_the_place_of_values_that_no_later_step_reads(molecules, name):
    program = layer_call(network(name, molecules).on_backend("fused").eval(), molecules.batch(range(3))).program
    backward = backward_of(program, True, True)
    layout = backward_layout(program, backward, SIZES, backward.kept - {X, BONDS})
    assert layout.size < 0.85 * backward_layout(program, backward, SIZES).size
    for gradient, value in layout.over.items():
        last = max(time for time, read in enumerate(backward.read) if value.number in read)
        assert last < next(time for time, step in enumerate(backward.steps) if gradient.number in made_by(step))


def made_by(step: GradStep | Step) -> set[int]:
    """Return the gradients that a step makes."""
    made = (getattr(step, name, None) for name in ("source", "bonds", "target", "gates"))
    return {each.out for each in made if isinstance(each, Produced)}
