import os

import numpy as np
import pytest

from molgcn.data import PackedMolecules
from molgcn.data.identity import with_hashes
from molgcn.errors import UserError
from molgcn.training.trained_on import TRAINED_ON, count_trained_on, save_trained_on


def test_molecules_are_counted_however_they_are_written(tmp_path):
    others = with_hashes(PackedMolecules.from_smiles(["OCC", "CCN", "C(O)C", "CCC"]))
    parts = {"val": np.array([0, 1]), "test": np.array([2, 3])}
    assert count_trained_on([tmp_path], others, parts) is None
    save_trained_on(tmp_path, with_hashes(PackedMolecules.from_smiles(["CCC", "CCO", "CCO"])))
    assert os.listdir(tmp_path) == [TRAINED_ON]
    assert len(np.load(tmp_path / TRAINED_ON)) == 2
    assert count_trained_on([tmp_path], others, parts) == {"val": 1, "test": 2}


@pytest.mark.parametrize("content", [b"", b"damaged"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / TRAINED_ON).write_bytes(content)
    with pytest.raises(UserError, match=rf"{TRAINED_ON} cannot be read: .*delete it"):
        count_trained_on([tmp_path], with_hashes(PackedMolecules.from_smiles(["C"])), {"all": np.array([0])})
