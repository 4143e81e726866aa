import os

import numpy as np
import pytest

from molgcn.data import PackedMolecules
from molgcn.domain.index import DomainIndex
from molgcn.errors import UserError


def packed(smiles, features="general"):
    return PackedMolecules.from_smiles(smiles, features=features, num_workers=0)


def test_what_it_holds_and_how_it_is_kept(tmp_path):
    molecules = packed(["CCO", "OCC", "C", "CC(=O)N"])
    index = DomainIndex.of(molecules)
    assert index.fingerprints.shape == (3, 256)  # copies are one
    assert index.sizes.tolist() == [1, 4]
    assert {row.tobytes() for row in index.atoms} == {row.tobytes() for row in molecules.node_features()}
    assert {row.tobytes() for row in index.bonds} == {row.tobytes() for row in molecules.edge_features()}
    index.save(tmp_path / "i.npz")
    assert os.listdir(tmp_path) == ["i.npz"]
    again = DomainIndex.load(tmp_path / "i.npz")
    for name, values in index.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], values)


def test_a_part_has_only_its_own_rows():
    """A part of a packed set keeps the table of all molecules, but the index takes its own rows only."""
    molecules = packed(["CCO", "c1ccccc1Br"])
    assert len(DomainIndex.of(molecules[[0]]).atoms) == 3 < len(molecules.table)


def test_molecules_without_smiles_have_none():
    molecules = packed(["CCO"])
    molecules.smiles = None
    with pytest.raises(UserError, match="needs molecules with SMILES"):
        DomainIndex.of(molecules)


@pytest.mark.parametrize("content", [b"", b"damaged", "other", "pickle", "width"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "i.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "other":
        np.savez(path, x=np.zeros(3))
    else:
        arrays = DomainIndex.of(packed(["CCO"])).arrays()
        arrays["fingerprints"] = np.array([None]) if content == "pickle" else arrays["fingerprints"][:, :100]
        np.savez(path, **arrays)
    with pytest.raises(UserError, match=r"i\.npz holds no index of training molecules.*Write it again"):
        DomainIndex.load(path)
