import pytest
from rdkit import Chem
from rdkit.Chem import Crippen

from molgcn.data.labels import LABELS, largest_cycle, penalized_logp


@pytest.mark.parametrize(("smiles", "size"), [("CCO", 0), ("C1CC1", 3), ("c1ccccc1", 6), ("C1CCCCCCC1", 8), ("C1CC1C1CCCC1", 5)])
def test_largest_cycle_of_separate_rings(smiles, size):
    assert largest_cycle(Chem.MolFromSmiles(smiles)) == size


def test_penalized_logp_is_the_benchmarks_formula():
    mol = Chem.MolFromSmiles("C1CCCCCCC1")
    accessibility = 1.0000  # the score's lower end, which simple rings reach up to their complexity
    value = penalized_logp(mol)
    log_p = (Crippen.MolLogP(mol) - 2.4570953396190123) / 1.434324401111988
    cycle = (-2 + 0.0485696876403053) / 0.2860212110245455
    implied = 3.0525811293166134 - (value - log_p - cycle) * 0.8335207024513095
    assert implied == pytest.approx(accessibility, abs=0.35)
    assert LABELS["penalized_logp"] is penalized_logp


@pytest.mark.slow
def test_zinc_label_has_the_published_mean_and_deviation(real_data):
    import numpy as np

    lines = (real_data / "zinc" / "zinc_24445.smi").read_text().split()
    values = np.array([penalized_logp(Chem.MolFromSmiles(line)) for line in lines])
    assert values.mean() == pytest.approx(0.0035, abs=1e-3)
    assert values.std() == pytest.approx(2.009, abs=1e-2)
