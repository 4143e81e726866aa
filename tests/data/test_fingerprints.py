import logging

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, tanimoto_distances
from molgcn.errors import UserError


def test_distances_are_rdkits():
    smiles = [ring + "C" * n for ring in ("c1ccccc1", "C1CCCCC1O", "CC(=O)N") for n in range(200)]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    expected = 1 - np.array([DataStructs.BulkTanimotoSimilarity(one, bits) for one in bits])
    found = np.empty((600, 600))
    for rows, block in tanimoto_distances(morgan_fingerprints(smiles)):
        found[rows] = block
    np.testing.assert_array_equal(found, expected)


def test_atom_maps_do_not_count_and_what_rdkit_refuses_has_no_bits():
    fingerprints = morgan_fingerprints(["[CH3:1][OH:2]", "CO", "C(C)(C)(C)(C)C"])
    assert (fingerprints[0] != fingerprints[1]).nnz == 0
    assert fingerprints[2].nnz == 0


def test_pairs_that_fit_into_no_memory_are_refused_and_many_are_announced(caplog):
    caplog.set_level(logging.WARNING)
    check_pairs(20_000, 4, "butina", memory=4e9)
    assert not caplog.records
    check_pairs(30_000, 1, "butina", memory=4e9)
    assert "split=butina compares all pairs of 30,000 molecules, which takes 0.9 GB of memory and about 3 minutes" in caplog.text
    with pytest.raises(UserError, match=r"all pairs of 30,000 molecules, which takes 3\.6 GB.*machine has 4\.0 GB.*split=scaffold"):
        check_pairs(30_000, 4, "kennard_stone", memory=4e9)
