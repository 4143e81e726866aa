import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real data sets, the environment variable MOLGCN_DATA; tests that need it are skipped without it."""
    folder = os.environ.get("MOLGCN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("MOLGCN_DATA is not set to a folder of data sets")
    return Path(folder)
