"""The machine code of GCN's kernels stays the same byte for byte until somebody changes it on purpose."""

import json
from importlib.metadata import PackageNotFoundError, version

import pytest
from cubin_hashes import GPUS, NETWORKS, TABLE, hashes

FAST = ("32 features", "sm_90")
CASES = [(network, arch) for network in NETWORKS for arch in GPUS]


@pytest.mark.parametrize(("network", "arch"), [FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case != FAST)])
def test_machine_code_is_as_committed(network, arch):
    """After an intended change that was measured, `python tests/ops/cubin_hashes.py` writes new hashes."""
    table = json.loads(TABLE.read_text())
    try:
        compiler = version("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        compiler = "of another package"
    if compiler != table["nvrtc"]:
        pytest.skip(f"the hashes are those of NVRTC {table['nvrtc']}, this one is {compiler}: each has its own machine code")
    assert hashes(network, arch) == table["cubins"][network][arch]
