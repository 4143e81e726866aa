import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator
from rdkit.ML.Cluster.Butina import ClusterData

from molgcn.data.splits.groups import butina_groups

SMILES = ["CCO" + "C" * n for n in range(6)] + ["c1ccccc1" + "C" * n for n in range(6)] + ["C1CC1N", "C1CC1NC", "[Na+].[Cl-]"]


@pytest.mark.parametrize("cutoff", [0.2, 0.4, 0.6])
def test_clusters_are_rdkits_own_of_its_own_distances(cutoff):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in SMILES]
    distances = [1 - DataStructs.TanimotoSimilarity(bits[i], bits[j]) for i in range(len(bits)) for j in range(i)]
    expected = {frozenset(one) for one in ClusterData(distances, len(bits), cutoff, isDistData=True)}
    groups = butina_groups(SMILES, cutoff)
    assert {frozenset(np.flatnonzero(groups == number).tolist()) for number in np.unique(groups)} == expected
    assert 1 < len(expected) < len(SMILES)
