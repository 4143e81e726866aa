"""`molgcn::encode` under emulation, for the tests of the operator and of networks."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from emulated import Emulator

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops import encode_cuda


@contextmanager
def encode_emulated() -> Iterator[None]:
    """Use CUDA's implementation for CPU tensors."""
    library = torch.library.Library("molgcn", "IMPL")
    library.impl("encode", encode_cuda.forward, "CPU")
    library.impl("encode_backward", encode_cuda.backward, "CPU")
    with launching_by(Emulator()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_cuda, "SUM_THREADS", 128)  # a thread is a fiber here, and slow
        yield
    library._destroy()
