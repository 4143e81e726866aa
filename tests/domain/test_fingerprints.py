import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, DataStructs
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

from molgcn.domain.fingerprints import NearestNeighbour, morgan_fingerprints


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


def draw(rng, count, share, bits=2048):
    """Return packed fingerprints whose bits are as unevenly common as those of molecules."""
    return np.packbits(rng.random((count, bits)) < share * np.linspace(0, 2, bits) ** 4, axis=1)


@settings(max_examples=25)
@given(st.integers(0, 99), st.integers(1, 200), st.floats(0, 0.3))
def test_it_is_rdkit_s_largest(seed, count, share):
    rng = np.random.default_rng(seed)
    known, queries = draw(rng, count, share), draw(rng, 4, share)
    vectors = [DataStructs.CreateFromBinaryText(one.tobytes()) for one in known]
    expected = [max(DataStructs.BulkTanimotoSimilarity(DataStructs.CreateFromBinaryText(one.tobytes()), vectors)) for one in queries]
    found = NearestNeighbour(known).similarity(queries)
    empty = ~queries.any(axis=1)  # RDKit gives 0 for two empty ones
    np.testing.assert_allclose(found[~empty], np.array(expected)[~empty], rtol=1e-12)
    assert (found[empty] == (~known.any(axis=1)).any()).all()


def test_by_hand():
    bits = np.zeros((3, 2048), np.uint8)
    bits[0, [1, 5, 2000]], bits[1, [1, 5]], bits[2, 7] = 1, 1, 1
    found = NearestNeighbour(np.packbits(bits, axis=1)).similarity(np.packbits(bits[[0, 1, 2]] | (np.arange(2048) == 9), axis=1))
    np.testing.assert_allclose(found, [3 / 4, 2 / 3, 1 / 2])
