"""PyG's own tests of its layers pass with the fused layers in their place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("gcn", "gin", "sage", "gat", "gatv2")
ON_DEVICE = """
import pytest, torch

@pytest.fixture(autouse=True)
def on_device():
    torch.set_default_device({device!r})
    torch.set_default_dtype(torch.float64)  # sums in another order agree to the tests' tolerances, whatever is drawn
    yield
    torch.set_default_device("cpu")
"""


@pytest.mark.peers
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_they_pass(device, tmp_path):
    """All tests pass that pass with PyG's layers in the same environment.

    Their full form (FULL_TEST) asks a scripted layer, which takes PyG's path, for the bits of one that is not; they agree to rounding.
    """
    folder = Path(os.environ["PYG_SOURCE"]) / "test/nn/conv"
    sources = {name: (folder / f"test_{name}_conv.py").read_text() for name in NAMES}
    swapped = {
        name: re.sub(r"^from torch_geometric\.nn import (.+)$", _swapped, text, flags=re.MULTILINE) for name, text in sources.items()
    }
    assert all("Fused" in text for text in swapped.values())
    failed = [_failures(tmp_path / kind, texts, device) for kind, texts in (("pyg", sources), ("fused", swapped))]
    assert failed[1] <= failed[0], failed[1] - failed[0]


def _swapped(line):
    names = line[1].split(", ")
    fused = [f"Fused{name} as {name}" for name in names if name.endswith("Conv")]
    others = [name for name in names if not name.endswith("Conv")]
    lines = [f"from molgcn.nn import {', '.join(fused)}"] if fused else []
    return "\n".join(lines + ([f"from torch_geometric.nn import {', '.join(others)}"] if others else []))


def _failures(folder, texts, device):
    """Return the names of the tests that fail with new tensors on a device, after checking that pytest could run them."""
    folder.mkdir()
    (folder / "conftest.py").write_text(ON_DEVICE.format(device=device))
    for name, text in texts.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE))
