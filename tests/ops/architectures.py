"""The GPUs that every kernel compiles for."""

import pytest

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# Fast tests use two of them, which kernels treat differently; the slow tier has all.
EVERY_ARCHITECTURE = [arch if arch in ("sm_80", "sm_90") else pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHITECTURES]
