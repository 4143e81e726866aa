import numpy as np
import pytest
from rdkit import Chem
from rdkit.Avalon.pyAvalonTools import GetAvalonCountFP
from rdkit.Chem import Descriptors, MACCSkeys, rdFingerprintGenerator
from rdkit.Chem.rdReducedGraphs import GetErGFingerprint

from molgcn.data.descriptors.generators import GENERATORS, calculator, generated_names
from molgcn.data.featurize import featurize_items
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.errors import UserError

SMILES = ["CCO", "c1ccccc1[C@H](F)Cl", "C/C=C/C(=O)O", "[CH3:1][OH:2]", "CC(=O)Oc1ccccc1C(=O)O"]


def test_they_are_rdkits():
    values = calculator(["rdkit2d", "morgan", "maccs"])("CC(=O)Oc1ccccc1C(=O)O")
    mol = Chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O")
    by_name = dict(zip(generated_names(["rdkit2d", "morgan", "maccs"]), values.tolist(), strict=True))
    assert by_name["MolWt"] == Descriptors.MolWt(mol) and by_name["TPSA"] == Descriptors.TPSA(mol)
    assert by_name["NumAtomStereoCenters"] == 0 and "Ipc" not in by_name
    bits = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048).GetFingerprint(mol).GetOnBits()
    assert [bit for bit in range(2048) if by_name[f"morgan_{bit}"]] == [*bits]
    assert [key for key in range(1, 167) if by_name[f"maccs_{key}"]] == [*MACCSkeys.GenMACCSKeys(mol).GetOnBits()]


def test_fingerprints_of_counts_are_rdkits():
    smiles, names = "CC(=O)Oc1ccccc1C(=O)O", ["morgan_counts", "avalon_counts", "erg"]
    morgan, avalon, erg = np.split(calculator(names)(smiles), [1024, 2048])
    mol = Chem.MolFromSmiles(smiles)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)
    np.testing.assert_array_equal(morgan, generator.GetCountFingerprintAsNumPy(mol))
    assert dict(zip(np.flatnonzero(avalon), avalon[avalon > 0], strict=True)) == GetAvalonCountFP(mol, nBits=1024).GetNonzeroElements()
    np.testing.assert_array_equal(erg, GetErGFingerprint(mol))
    assert morgan.max() > 1 and avalon.max() > 1 and erg.max() > 1


@pytest.mark.parametrize("name", GENERATORS)
def test_what_was_computed_before_does_not_count(name):
    """RDKit keeps what it has computed on a molecule. Bicycles, and rings with ketones, have reduced graphs of other sizes."""
    compute, smiles = GENERATORS[name].compute, [*SMILES, "CCCCC1(CC)C(=O)NC(=O)NC1=O", "CC12CCC(CC1)C(C)(C)O2", "c1ccc2ccccc2c1"]
    for text in smiles:
        used = Chem.MolFromSmiles(text)
        Chem.GetDistanceMatrix(used)
        for other in GENERATORS.values():
            other.compute(used)
        np.testing.assert_array_equal(compute(used), compute(Chem.MolFromSmiles(text)))


@pytest.mark.parametrize("features", ["qm9", "general", "zinc"])
def test_they_are_the_smiles_s_whatever_the_features(features):
    """Descriptors are the same from SMILES and mol blocks and in worker processes, whatever the graph contains."""
    smiles = [text for text in SMILES if features == "general" or "Cl" not in text]
    done = featurize_items(smiles, features=features, generators=("maccs", "rdkit2d"), num_workers=0)
    calculate = calculator(["maccs", "rdkit2d"])
    expected = np.stack([calculate(text) for text in smiles]).astype(np.float32)
    assert np.array_equal(done.packed.descriptors, expected)
    assert done.packed.descriptor_names == generated_names(["maccs", "rdkit2d"])
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in smiles[-1:]]
    assert np.allclose(
        featurize_items(blocks, features=features, kind="sdf", generators=("rdkit2d",)).packed.descriptors, expected[-1:, 166:]
    )


def test_a_molecule_without_one_is_a_row_that_fails():
    with pytest.raises(InvalidMoleculeError, match="'MaxPartialCharge' is missing"):
        calculator(["rdkit2d"])("[Pt](Cl)(Cl)(N)N")
    with pytest.raises(UserError, match=r"Row 1 .*\[Pt\].*MaxPartialCharge"):
        featurize_items(["CCO", "[Pt](Cl)(Cl)(N)N"], features="general", generators=("rdkit2d",))
    done = featurize_items(["CCO", "[Pt](Cl)(Cl)(N)N", "CO"], features="general", generators=("rdkit2d",), on_error="skip")
    assert done.kept.tolist() == [0, 2] and len(done.packed.descriptors) == 2


def test_physchem_is_rdkits_and_defined_for_every_molecule():
    values = dict(zip(generated_names(["physchem"]), calculator(["physchem"])("CC(=O)Oc1ccccc1C(=O)O").tolist(), strict=True))
    mol = Chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O")
    assert values["physchem_exactmw"] == Descriptors.ExactMolWt(mol) and values["physchem_tpsa"] == Descriptors.TPSA(mol)
    assert values["physchem_SlogP_VSA2"] == Descriptors.SlogP_VSA2(mol) and values["physchem_SMR_VSA10"] == Descriptors.SMR_VSA10(mol)
    assert values["physchem_PEOE_VSA14"] == Descriptors.PEOE_VSA14(mol) and values["physchem_MQNs12"] == mol.GetNumHeavyAtoms()
    for smiles in ("[Pt](Cl)(Cl)(N)N", "[Na+].[O-]C=O", "[Se]", "[H][H]", "*C"):
        assert np.isfinite(calculator(["physchem"])(smiles)).all()


def test_graphs_that_the_features_refuse_take_their_descriptors_along():
    done = featurize_items(["CCO", "C[Pt]", "CO"], features="qm9", generators=("maccs",), on_error="skip")
    calculate = calculator(["maccs"])
    assert done.kept.tolist() == [0, 2] and np.array_equal(done.packed.descriptors, [calculate("CCO"), calculate("CO")])


@pytest.mark.parametrize("name", GENERATORS)
def test_names_are_as_many_as_values(name):
    assert len(generated_names([name])) == len(set(generated_names([name]))) == len(calculator([name])("CCO"))
