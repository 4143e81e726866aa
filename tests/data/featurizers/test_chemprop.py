"""features=chemprop gives the package's own features, and rows that are written down."""

import numpy as np
import pytest
from rdkit import Chem

from molgcn.data import PackedMolecules
from molgcn.data.featurizers.chemprop import CHEMPROP

SMILES = [
    r"Cl[C@H](/C=C/C)Br", "N[C@@H](C)C(=O)O", "c1ccc2[nH]ccc2c1", "[Na+].[Cl-]", "C[N+](=O)[O-]", "[CH3]", "F[P-](F)(F)(F)(F)F", "CC#N",
    "[Pt@SP1](F)(Cl)(Br)I", "[NH3]->[Cu+2]", r"F/C=C\F", "FC=CF", "*C", "[U](F)(F)(F)(F)(F)F", "C[S@](=O)CC", "C1CC1", "O=C=O", "IC",
    "[Fe+3]",
    "C[C@]12CC[C@H]3[C@H]([C@@H]1CC[C@@H]2O)CCC4=CC(=O)CC[C@]34C", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
]  # fmt: skip


@pytest.mark.peers
def test_rows_are_chemprops():
    from chemprop.featurizers import MultiHotAtomFeaturizer, MultiHotBondFeaturizer

    atom_row, bond_row = MultiHotAtomFeaturizer.v2(), MultiHotBondFeaturizer()
    for smiles, mine in zip(SMILES, PackedMolecules.from_smiles(SMILES, features="chemprop").to_pyg(), strict=True):
        mol = Chem.MolFromSmiles(smiles)
        np.testing.assert_allclose(mine.x, [atom_row(atom) for atom in mol.GetAtoms()], rtol=1e-6, err_msg=smiles)  # masses are float32
        found = {tuple(pair): row for pair, row in zip(mine.edge_index.T.tolist(), mine.edge_attr.tolist(), strict=True)}
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), bond_row(bond).tolist()) for bond in mol.GetBonds()]
        assert found == {pair: row for i, j, row in ends for pair in ((i, j), (j, i))}, smiles


def test_rows_are_those_written_down():
    data = PackedMolecules.from_smiles([r"Cl[C@H](/C=C/C)Br"], features="chemprop").to_pyg()[0]
    assert data.x.shape[1] == len(CHEMPROP.names) == 72
    assert data.x[1].nonzero().flatten().tolist() == [5, 37 + 1 + 4, 45 + 4, 51 + 2, 56 + 1, 62 + 4, 71]
    assert float(data.x[1, 71]) == pytest.approx(0.12011, abs=1e-6)
    double = data.edge_attr[data.edge_index.T.tolist().index([2, 3])]
    assert [CHEMPROP.bond_names[place] for place in double.nonzero().flatten()] == ["double", "stereoe"]
    assert double.nonzero().flatten().tolist() == [2, 7 + 3]
