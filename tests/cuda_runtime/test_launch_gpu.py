"""Kernels are launched on a GPU. `pytest -m gpu`."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_head_loss import example

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.ops.head_loss import Objective, head_loss
from molgcn.ops.head_loss_cuda import HEADER, source

pytestmark = pytest.mark.gpu


def has_context():
    from cuda.bindings import driver

    return int(driver.cuCtxGetCurrent()[1]) != 0


class Loss:
    """A launch that computes a loss, the tensors that it writes, and what they hold then."""

    def __init__(self) -> None:
        x, _, _, targets = example(1500, (2,), device="cuda")
        self.expected = head_loss(x, [], [], Objective(*targets, "mse"))
        self.found = [torch.full_like(tensor, torch.nan) for tensor in self.expected]
        self.tensors = dict(zip(("x", "target", "mean", "std"), (x, *targets), strict=True))
        self.tensors |= {"derivatives": x.clone()} | dict(zip(("loss", "sums"), self.found, strict=True))
        self.parameters = fill(HEADER.ctype()(num_graphs=1500, num_targets=2), self.tensors)

    def kernel(self, **defines):
        file, given = source(2)
        return kernel(file, "masked_loss_forward", {**given, **defines}, self.found[0].device)

    def check(self) -> None:
        torch.cuda.synchronize()
        assert all(map(torch.equal, self.found, self.expected))


@pytest.mark.parametrize("how", [{}, {"cooperative": True}, {"overlap": True}], ids=str)
def test_a_launch_needs_no_context_in_its_thread(how):
    """A thread has no context until CUDA's runtime has worked in it, as autograd's thread at its first backward."""
    loss = Loss()
    function = loss.kernel()

    def launch():
        before = has_context()
        function.launch(1, 1024, 16 * 1024, loss.parameters, **how)
        return before, has_context()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launch).result() == (False, False)
    loss.check()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("shared", [16 * 1024, 100 * 1024])
def test_a_kernel_may_be_loaded_while_a_graph_is_captured(mode, shared):
    """A captured call is planned for its own shapes, and takes other kernels than the calls before it may have taken."""
    loss, graph = Loss(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        loss.kernel(LOADED_WITHIN=shared + len(mode)).launch(1, 1024, shared, loss.parameters)
    graph.replay()
    loss.check()
