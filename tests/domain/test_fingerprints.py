import numpy as np
from rdkit import Chem
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

from molgcn.domain.fingerprints import morgan_fingerprints


def test_they_are_rdkit_s():
    smiles = ["CCO", " c1ccccc1O", "C[C@H](N)C(=O)O", "[Na+].[Cl-]"]
    generator = GetMorganGenerator(radius=2, fpSize=2048)
    expected = np.stack([generator.GetFingerprintAsNumPy(Chem.MolFromSmiles(text.strip())) for text in smiles])
    found = morgan_fingerprints(smiles)
    assert found.shape == (4, 256) and found.dtype == np.uint8
    np.testing.assert_array_equal(np.unpackbits(found, axis=1), expected)
    assert morgan_fingerprints([]).shape == (0, 256)


def test_they_are_those_of_the_standard_form():
    found = morgan_fingerprints(["CC(=O)O.[Na]Cl", "CC(=O)[O-]", "CC(=O)O"], "neutral")
    assert (found == found[2]).all()
    assert (morgan_fingerprints(["CC(=O)[O-]"]) != found[2]).any()
