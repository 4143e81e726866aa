import sys

import numpy as np
import pytest

from molgcn.data.fingerprints import morgan_fingerprints, tanimoto_distances
from molgcn.data.splits.ordered import kennard_stone_ranks
from molgcn.errors import UserError

SMILES = ["CCO", "CCCO", "CCCCO", "c1ccccc1", "c1ccccc1C", "C1CC1N", "OC(=O)C", "CC(C)(C)C", "N#CC", "CCCCCCCCO"]


def test_the_next_one_is_the_farthest_from_those_before():
    (_, distances), *_ = tanimoto_distances(morgan_fingerprints(SMILES))
    order = np.argsort(kennard_stone_ranks(SMILES))
    assert sorted(order.tolist()) == list(range(len(SMILES)))
    assert distances[order[0], order[1]] == distances.max()
    for place in range(2, len(SMILES)):
        to_chosen = distances[np.ix_(order[place:], order[:place])].min(axis=1)
        assert to_chosen[0] == pytest.approx(to_chosen.max(), abs=1e-6)


@pytest.mark.parametrize("smiles", [["C"], ["C", "CC"]])
def test_as_few_as_there_are(smiles):
    assert sorted(kennard_stone_ranks(smiles).tolist()) == list(range(len(smiles)))


def test_without_astartes_its_installation_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "astartes.utils.fast_kennard_stone", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[splits\]"):
        kennard_stone_ranks(SMILES)
