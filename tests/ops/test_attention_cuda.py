"""The attention kernels agree with the oracle under emulation."""

import pytest
import torch
from architectures import ARCHITECTURES, EVERY_ARCHITECTURE
from attention_cases import CASES, assert_close, expected, gradient_for, present, random_inputs
from emulated import Compiler, gpu_memory

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops import attention_cuda

FIRST = CASES[3], CASES[9]  # the fast tests; every case is a compilation


def run(inputs):
    """Return output and gradients of the kernels."""
    with gpu_memory():
        out, softmax = attention_cuda.forward(*inputs)
        gradients = attention_cuda.backward(gradient_for(inputs), out, softmax, *inputs)
    by_name = dict(zip(("source", "targets", "edges", "att"), gradients, strict=True))
    return {"out": out, **{name: by_name[name] for name in present(inputs)}}


@pytest.mark.parametrize("case", [case if case in FIRST else pytest.param(case, marks=pytest.mark.slow) for case in CASES], ids=str)
def test_every_case_in_float64(emulate, case):
    inputs = random_inputs(**case)
    assert_close(run(inputs), expected(inputs), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[4:5] + CASES[9:11], ids=str)
def test_float32(emulate, case):
    inputs = random_inputs(**case, dtype=torch.float32)
    assert_close(run(inputs), expected(inputs), 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[3:5], ids=str)
def test_no_races(emulate, case):
    emulate.find_races = True
    run(random_inputs(**case))


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    compiler = Compiler(arch)
    with launching_by(compiler):
        case = CASES[3 + ARCHITECTURES.index(arch) % 2]
        run(random_inputs(**case, dtype=torch.float32))
    assert compiler.sources == {"attention_forward.cu", "attention_backward.cu"}
