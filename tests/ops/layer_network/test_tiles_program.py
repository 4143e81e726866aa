"""The instructions on tiles put barriers between the warps' accesses to each other's rows."""

import pytest
from layer_network_cases import options_of
from tiles_cases import CASES

from molgcn.nn.network_steps import program_of
from molgcn.ops.layer_network.backward import backward_of
from molgcn.ops.layer_network.tiles_plan import LAYERS_OF_LAUNCH
from molgcn.ops.layer_network.tiles_program import TilePass, again_passes, backward_passes, forward_pass

READS_OTHER_ROWS = {"gather", "pool", "gather_grad", "eps_grad", "table_grad"}


def check(made: TilePass) -> None:
    """Check that rows are gathered after a barrier behind their writing, and a slot is written after one behind gathering from it."""
    written, gathered = set(), set()
    for instruction in made.instructions:
        if instruction.op in ("sync", "linear"):
            written.clear()
            gathered.clear()
        elif instruction.op == "put":
            assert instruction.slot not in gathered
            written.add(instruction.slot)
        elif instruction.op in READS_OTHER_ROWS:
            assert instruction.slot not in written
            gathered.add(instruction.slot)
        assert instruction.slot < made.num_slots


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("together", [1, 2, 4])
@pytest.mark.parametrize("network", CASES)
def test_barriers(network, together, coded):
    for residual in (True, False):
        options = options_of(network, num_layers=5)._replace(residual=residual)
        program = program_of(options)
        check(forward_pass(program, frozenset(range(len(program.values)))))
        backward = backward_of(program, True, options.edge_channels is not None, together)
        passes = backward_passes(program, backward, coded=coded)
        assert len(passes) == -(-5 // together)
        for made in passes:
            check(made)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("network", CASES)
def test_recomputing_fits_where_the_passes_do(network, residual):
    """Values are computed again by the kernel of the forward pass, and gradients by launches of one layer in place of four."""
    options = options_of(network, num_layers=5)._replace(residual=residual)
    program, has_bonds = program_of(options), options.edge_channels is not None
    usual, backward = (backward_of(program, True, has_bonds, together, together == 1) for together in (LAYERS_OF_LAUNCH, 1))
    forward, again = forward_pass(program, frozenset()), again_passes(program, backward)
    for made in again:
        check(made)
        assert made.num_slots <= forward.num_slots
        assert len(made.instructions) <= len(forward.instructions)
    most = [max(made.num_slots for made in backward_passes(program, each, coded=True)) for each in (usual, backward)]
    assert most[1] <= most[0]
