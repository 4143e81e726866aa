"""The tests of the fused operator skip where the extension is missing: with a compiler present, that is a failure of the build."""

import shutil

import pytest

from molgcn.ops import HAS_CPU_EXTENSION


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so the package installs without its extension")
def test_a_machine_with_a_compiler_has_the_extension():
    assert HAS_CPU_EXTENSION
