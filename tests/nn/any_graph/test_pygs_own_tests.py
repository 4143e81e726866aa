"""PyG's own tests of its layers pass with the fused layers in their place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ON_DEVICE = """
import pytest, torch

@pytest.fixture(autouse=True)
def on_device():
    torch.set_default_device({device!r})
    yield
    torch.set_default_device("cpu")
"""


@pytest.mark.skipif("PYG_SOURCE" not in os.environ, reason="PYG_SOURCE names no checkout of pytorch_geometric")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["gcn", "gin", "sage", "gat", "gatv2"])
def test_they_pass(name, device, tmp_path):
    """All tests pass that pass with PyG's layers in the same environment.

    Their full form (FULL_TEST) asks a scripted layer, which takes PyG's path, for the bits of one that is not; they agree to rounding.
    """
    source = (Path(os.environ["PYG_SOURCE"]) / f"test/nn/conv/test_{name}_conv.py").read_text()
    swapped = re.sub(r"^from torch_geometric\.nn import (.+)$", _swapped, source, flags=re.MULTILINE)
    assert "Fused" in swapped
    failed = [_failures(tmp_path / kind, text, device) for kind, text in (("pyg", source), ("fused", swapped))]
    assert failed[1] <= failed[0], failed[1] - failed[0]


def _swapped(line):
    names = line[1].split(", ")
    fused = [f"Fused{name} as {name}" for name in names if name.endswith("Conv")]
    others = [name for name in names if not name.endswith("Conv")]
    lines = [f"from molgcn.nn import {', '.join(fused)}"] if fused else []
    return "\n".join(lines + ([f"from torch_geometric.nn import {', '.join(others)}"] if others else []))


def _failures(folder, text, device):
    """Return the names of the tests that fail with new tensors on a device, after checking that pytest could run them."""
    folder.mkdir()
    (folder / "conftest.py").write_text(ON_DEVICE.format(device=device))
    (folder / "test_layers.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "test_layers.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE))
