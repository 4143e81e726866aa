"""Print Chemprop's default features of SMILES, in the Python that has Chemprop, where molgcn is missing."""

import json
import sys

from chemprop.featurizers import MultiHotAtomFeaturizer, MultiHotBondFeaturizer
from rdkit import Chem

atoms, bonds = MultiHotAtomFeaturizer.v2(), MultiHotBondFeaturizer()
rows = []
for smiles in json.load(sys.stdin):
    mol = Chem.MolFromSmiles(smiles)
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), bonds(bond).tolist()) for bond in mol.GetBonds()]
    rows.append({"atoms": [atoms(atom).tolist() for atom in mol.GetAtoms()], "bonds": ends})
json.dump(rows, sys.stdout)
