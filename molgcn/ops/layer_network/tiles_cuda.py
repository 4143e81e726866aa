"""The steps of a pass on tiles of whole molecules: one launch for all layers forward, and one for some layers backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops.layer_network.backward import Backward
from molgcn.ops.layer_network.call import PRECISIONS
from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch
from molgcn.ops.layer_network.gradient_steps import GradStep, InputGrad, PoolGrad, WeightGrads
from molgcn.ops.layer_network.launches_cuda import Launch
from molgcn.ops.layer_network.layer_ends_cuda import LayerEnds
from molgcn.ops.layer_network.layouts import Ref
from molgcn.ops.layer_network.passes import Pass, Rows, backward_steps
from molgcn.ops.layer_network.program import NORMS, POOLS, has_other_activations
from molgcn.ops.layer_network.rows_gather_cuda import GatherLaunches
from molgcn.ops.layer_network.rows_launches import RowLaunches
from molgcn.ops.layer_network.rows_pad_cuda import pad_rows
from molgcn.ops.layer_network.steps import AGGREGATIONS, Gather, Linear, Normalize, Step, X
from molgcn.ops.layer_network.tiles_arguments import MAX_CLEARED, network_type
from molgcn.ops.layer_network.tiles_plan import TilePlan
from molgcn.ops.layer_network.tiles_program import TilePass, again_passes, backward_passes, forward_pass
from molgcn.ops.layer_network.tiles_resolve import Resolver, TileProducts
from molgcn.ops.layer_network.tiles_sums import TileSums
from molgcn.ops.layer_network.workspace import Workspace


class TileSteps:
    """The steps of a pass by `cuda/tile_network.cu`. Steps on the bonds' rows, and the gradients of weights, are launches of their own.

    Args:
        run: The pass, for which :func:`molgcn.ops.layer_network.tiles_plan.why_not` is None.
    """

    signs_alone = False

    def __init__(self, run: Pass) -> None:
        self._run = run
        self._workspace = Workspace(run.graph.x, overlaps=run.is_backward)
        self._ends = LayerEnds(run, self._workspace)
        self._products = TileProducts(run, self._workspace, self._ends)
        self._device = run.graph.x.device
        self._of_bonds: list[InputGrad] = []
        if run.is_backward:
            self._workspace.sums.add_zeros(run.zero_gradients)
            again, passes = again_passes(run.program, run.backward), self._backward_passes(run.backward)
            run.lay_out_launches([its.touched | made.touched for its, made in zip(again, passes, strict=True)])
            self._backward_plan = self._planned(*passes, sums_codes=True)
            self._passes = iter(zip(again, passes, strict=True))
        else:
            run.lay_out_values([X, *(value for value in range(len(run.program.values)) if self._is_of_bonds(value))])

    def pad(self, given: Tensor, to: Rows) -> None:
        """Copy an input whose width is not a multiple of four."""
        pad_rows(given, to)

    def forward(self, step: Step) -> None:
        """Compute a step's value if it is one of bonds. The launch for the pooling, or before a layer's gradients, computes all others."""
        if isinstance(step, Linear) and self._is_of_bonds(step.source):
            self._products.linear(Launch(step))

    def pool(self, value: int, pooled: Tensor) -> None:
        """Compute all layers and the pooled rows of the last value, `pooled` [B, H]."""
        tile_ptr = self._run.graph.tile_ptr
        assert tile_ptr is not None
        end = tile_ptr.data_ptr() + 4 * (tile_ptr.shape[0] - 1)
        self._launch(self._forward_pass, pooled, (Rows(pooled, pooled.shape[1]), end, 0))

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor) -> None:
        """Take the gradient of the pooled rows. The first launch computes that of the last value."""
        self._grad_pooled = grad_pooled

    def backward(self, step: GradStep) -> None:
        """Compute all steps of some layers once the step comes that computes the gradients of their weights."""
        if isinstance(step, InputGrad) and self._is_of_bonds(step.source.value):
            self._of_bonds.append(step)
        if isinstance(step, WeightGrads):
            again, made = next(self._passes)
            if again.instructions:
                self._launch(again, self._grad_pooled)
            self._launch_backward(made)
            for each in self._of_bonds:
                self._products.input_grad(GradLaunch(each))
            self._of_bonds.clear()
            self._products.weight_grads(step)
            self._workspace.sums.launch()

    @cached_property
    def _gathers(self) -> GatherLaunches:
        return GatherLaunches(RowLaunches(self._run, self._workspace, self._ends))

    def _is_of_bonds(self, value: int) -> bool:
        return self._run.program.values[value].rows == "bonds"

    def _launch_backward(self, made: TilePass) -> None:
        run, graph, cleared = self._run, self._run.graph, []
        atoms = graph.ptr.data_ptr() + 4 * graph.num_graphs
        if run.backward.of_x is not None and Ref(True, run.backward.of_x) in made.touched:
            cleared.append((run.gradient(run.backward.of_x), atoms, 0))
        if run.backward.of_bonds is not None and Ref(True, run.backward.of_bonds) in made.touched and graph.code is None:
            cleared.append((run.gradient(run.backward.of_bonds), atoms, graph.rowptr.data_ptr()))
        self._launch(made, self._grad_pooled, *cleared, plan=self._backward_plan)

    def _backward_passes(self, backward: Backward) -> tuple[TilePass, ...]:
        return backward_passes(self._run.program, backward, coded=self._run.graph.code is not None)

    @cached_property
    def _forward_pass(self) -> TilePass:
        stored = frozenset(value for value in self._run.kept if value != X and not self._is_of_bonds(value))
        return forward_pass(self._run.program, stored)

    @cached_property
    def _forward_plan(self) -> TilePlan:
        return self._planned(self._forward_pass, sums_codes=False)

    def _planned(self, *passes: TilePass, sums_codes: bool) -> TilePlan:
        return TilePlan.of(self._run.call, passes, gpu(self._device), sums_codes=sums_codes)

    def _launch(self, made: TilePass, pooled: Tensor, *cleared: tuple[Rows, int, int], plan: TilePlan | None = None) -> None:
        """Launch instructions, and add up the sums of a backward pass.

        Args:
            made: The instructions.
            pooled: The pooled rows, or their gradient.
            *cleared: Rows that become zero beyond the last molecule, atom or bond, with the addresses for `num_real` in cuda/quads.cuh.
            plan: The plan of the launches of a backward pass, or None for the instructions of a forward pass.
        """
        run, graph, rate, sums, backward = self._run, self._run.graph, self._run.call.program.dropout, TileSums(), plan is not None
        plan = plan or self._forward_plan
        assert graph.tile_ptr is not None
        num_tiles = graph.tile_ptr.shape[0] - 1
        blocks = plan.num_blocks(num_tiles)
        it: Any = network_type(plan.room)(num_instructions=len(made.instructions), num_tiles=num_tiles, num_cleared=len(cleared))
        resolver = Resolver(run, self._products, pooled, sums)
        for each, instruction in zip(it.instructions, made.instructions, strict=False):
            resolver.fill(each, instruction)
        linear = [number for number, instruction in enumerate(made.instructions) if instruction.op == "linear"]
        it.first_linear = linear[0] if linear else -1
        for number, following in zip(linear, [*linear[1:], *linear[:1]], strict=True):
            it.instructions[number].next = following
        tensors = {name: getattr(graph, name) for name in ("ptr", "rowptr", "col", "code", "tile_ptr")}
        if backward and run.program.edge_channels is not None:
            tensors["paired"] = self._gathers.paired
        numbers = {"dropout_threshold": int(rate * 2**32), "dropout_scale": 1 / (1 - rate), "norm_eps": run.program.eps}
        numbers |= {"num_slots": plan.num_slots, "num_codes": plan.num_codes, "num_sums": sums.count}
        fill(it, {name: tensor for name, tensor in tensors.items() if tensor is not None} | numbers | {"seed": run.call.seed})
        it.sums = sums.leave(self._workspace, blocks * plan.warps)
        for clear, (rows, atoms, bonds) in zip(it.cleared, cleared, strict=False):
            clear.rows, clear.atoms, clear.bonds, clear.width = rows.address, atoms, bonds, rows.tensor.shape[1]
            clear.num_rows = rows.tensor.shape[0]
        macros = self._macros(plan, backward=backward)
        function = kernel("tile_network.cu", "tile_network", macros, self._device, None if backward else self._prefetch)
        function.launch(blocks, 32 * plan.warps, plan.shared_bytes, it)
        self._workspace.sums.launch()

    def _prefetch(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield the kernel of the backward pass, to compile it at the same time as that of the forward pass."""
        run = self._run
        if run.call.options.save_for_backward:
            backward = backward_steps(run.call, grad_x=run.graph.x.requires_grad, grad_bonds=run.graph.bonds is not None)
            plan = self._planned(*self._backward_passes(backward), sums_codes=True)
            yield "tile_network.cu", self._macros(plan, backward=True)

    def _macros(self, plan: TilePlan, *, backward: bool) -> dict[str, int]:
        run = self._run
        aggr = next(step.aggr for step in run.program.steps if isinstance(step, Gather))
        bonds = 0 if run.program.edge_channels is None else 1 if run.graph.code is not None else 2
        macros = {"HIDDEN": run.program.hidden_channels, "CHUNKS": plan.chunks, "WARPS": plan.warps, "MIN_BLOCKS": plan.min_blocks}
        macros |= {"BUFFER": plan.buffer}
        macros |= {"PRECISION": PRECISIONS.index(run.call.options.precision), "AGGR": AGGREGATIONS.index(aggr), "BONDS": bonds}
        macros |= {"DROPOUT": int(run.call.program.dropout > 0), "POOL": POOLS.index(run.program.pool), "BACKWARD": int(backward)}
        macros |= {
            "OTHERS": int(has_other_activations(run.program)),
            "NORMS": sum(NORMS.index(kind) for kind in set(run.program.norms.values())),
        }
        macros |= {"NORMALIZE": int(any(isinstance(step, Normalize) for step in run.program.steps))}
        return macros | {"MAX_INSTRUCTIONS": plan.room, "MAX_CLEARED": MAX_CLEARED}
