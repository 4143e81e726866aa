import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Crippen, rdMolDescriptors

from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.data.sources.builtin import builtin_path
from molgcn.errors import UserError

GENERATOR = Path(__file__).parents[3] / "data" / "generate.py"


@pytest.fixture(scope="module")
def rows():
    with open(builtin_path()) as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_size_of_the_set_and_of_the_file(rows):
    assert len(rows) >= 5000
    assert builtin_path().stat().st_size < 500_000
    assert len({row["smiles"] for row in rows}) == len(rows)


def test_every_molecule_is_valid_and_canonical_c_n_o_f_up_to_nine(rows):
    for row in rows:
        mol = Chem.MolFromSmiles(row["smiles"])
        assert mol is not None, row
        assert 1 <= mol.GetNumAtoms() <= 9
        assert {atom.GetSymbol() for atom in mol.GetAtoms()} <= set("CNOF")
        assert Chem.MolToSmiles(mol) == row["smiles"]
        assert len(Chem.GetMolFrags(mol)) == 1
        assert sum(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms()) == 0


def test_labels_are_rdkits(rows):
    for row in rows[::7]:
        mol = Chem.MolFromSmiles(row["smiles"])
        assert float(row["logp"]) == pytest.approx(Crippen.MolLogP(mol), abs=1e-4)
        assert float(row["mr"]) == pytest.approx(Crippen.MolMR(mol), abs=1e-3)
        assert float(row["tpsa"]) == pytest.approx(rdMolDescriptors.CalcTPSA(mol), abs=1e-2)


@pytest.mark.slow
def test_molecules_are_diverse(rows):
    mols = [Chem.MolFromSmiles(row["smiles"]) for row in rows]
    aromatic = sum(any(atom.GetIsAromatic() for atom in mol.GetAtoms()) for mol in mols) / len(mols)
    assert 0.2 < aromatic < 0.6
    assert {mol.GetNumAtoms() for mol in mols} == set(range(1, 10))
    for pattern in ("C(=O)[OH]", "C(=O)N", "C#N", "[N+](=O)[O-]", "c1ccccc1", "C1CC1", "FC(F)F", "C=C", "C#C", "[nH]", "C1CCOC1"):
        assert sum(mol.HasSubstructMatch(Chem.MolFromSmarts(pattern)) for mol in mols) >= 5, pattern
    assert "C" in {row["smiles"] for row in rows}


@pytest.mark.parametrize("heavy_atoms", [5, pytest.param(7, marks=pytest.mark.slow)])  # from 7 on they are sampled; all 9 take minutes
def test_the_generator_gives_the_file_s_first_lines(heavy_atoms, rows, generator, tmp_path):
    generator.write(tmp_path / "molecules.csv", heavy_atoms)
    count = sum(Chem.MolFromSmiles(row["smiles"]).GetNumAtoms() <= heavy_atoms for row in rows)
    assert (tmp_path / "molecules.csv").read_text().splitlines() == builtin_path().read_text().splitlines()[: count + 1]


def test_unstable_molecules_are_refused(generator):
    for smiles in ("OO", "NO", "CC(O)O", "C=CO", "NCN", "OC(=O)O", "CC(=O)F", "C#CO", "NC(O)=O", "C1=CC1"):
        assert not generator.is_stable(Chem.CanonSmiles(smiles)), smiles
    for smiles in ("C", "CO", "CC(N)=O", "c1ccc2[nH]ccc2c1", "C1COCO1", "O=[N+]([O-])c1ccccc1", "FC(F)F", "CC(=O)O"):
        assert generator.is_stable(Chem.CanonSmiles(smiles)), smiles


def test_loads_with_units_and_split(tmp_path, rows):
    loaded = load_dataset(DatasetConfig(targets=["tpsa", "logp"], cache_dir=str(tmp_path)))
    molecules = loaded.molecules
    assert molecules.target_names == ("tpsa", "logp")
    assert molecules.target_units == ("A^2", "")
    assert molecules.features == "qm9"
    assert sum(len(indices) for indices in loaded.splits.values()) == len(molecules) == len(rows)
    np.testing.assert_allclose(molecules.targets[:, 1], [float(row["logp"]) for row in rows], rtol=1e-6)


def test_mistakes(tmp_path):
    with pytest.raises(UserError, match="Did you mean 'logp'"):
        load_dataset(DatasetConfig(targets=["logP"], cache_dir=str(tmp_path)))
    with pytest.raises(UserError, match="dataset=csv"):
        load_dataset(DatasetConfig(path="x.csv", cache_dir=str(tmp_path)))
    with pytest.raises(UserError, match="no benchmark split"):
        load_dataset(DatasetConfig(split="benchmark", subset=50, cache_dir=str(tmp_path)))
