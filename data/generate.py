"""Enumerates the built-in molecules with RDKit and labels them: `python data/generate.py` writes data/molecules.csv.

Every molecule is grown from a skeleton (an alkane, a ring, a fused or bridged ring system) by replacing hydrogens with
functional groups, up to nine heavy atoms of C, N, O and F. RDKit checks valences; the patterns under UNSTABLE remove what is
not isolable or would be a strained curiosity, so that what is left are molecules a chemist would call real. All molecules of
at most SMALL heavy atoms are kept, larger ones are sampled by a hash of their SMILES, half of them aromatic, which makes the
result independent of the order of enumeration. Labels are RDKit's: Crippen logP, Crippen molar refractivity, topological polar
surface area.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from pathlib import Path

from rdkit import Chem, RDLogger
from rdkit.Chem import Crippen, rdMolDescriptors

MAX_HEAVY = 9
SMALL = 6
SAMPLE = {7: 1400, 8: 2200, 9: 3200}
MAX_GROUPS = 3

# fmt: off
SKELETONS = (
    # carbon rings
    "C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "C1CCCCCC1", "C1CCCCCCC1", "C1=CCC1", "C1=CCCC1", "C1=CCCCC1", "C1=CCC=CC1",
    "C1=CC=CC1", "c1ccccc1", "C1CC2CC2C1", "C1CCC2CC2C1", "C1CC2CCC1C2", "C1CC2CCC1CC2", "C1=CC2CCC1C2", "C1CCC2CCCC2C1",
    "C1CC2CCCC2C1", "C1CC12CCCC2", "C1CC12CCCCC2", "C1CC2(C1)CCC2", "c1ccc2c(c1)CC2", "c1ccc2c(c1)CCC2", "C1=Cc2ccccc2C1",
    # saturated and partly saturated heterocycles
    "C1CO1", "C1CCO1", "C1CCOC1", "C1CCOCC1", "C1CN1", "C1CCN1", "C1CCNC1", "C1CCNCC1", "C1CCNCCC1", "C1COCCO1", "C1COCO1",
    "C1COCCN1", "C1CNCCN1", "C1=COCC1", "C1=COCCC1", "C1=CCOC1", "C1=CCNC1", "C1CC2CCC1O2", "C1CC2CCC1N2", "C1CN2CCC1CC2",
    "C1CC2CCC(C1)N2", "C1CC2COC2C1", "C1CC2CNCC2C1", "C1OCC12CCC2", "c1ccc2c(c1)CCO2", "c1ccc2c(c1)CCN2", "c1ccc2c(c1)CNC2",
    "c1ccc2c(c1)OCO2",
    # aromatic heterocycles
    "c1ccncc1", "c1cncnc1", "c1cnccn1", "c1ccnnc1", "c1cc[nH]c1", "c1ccoc1", "c1c[nH]cn1", "c1cn[nH]c1", "c1cocn1", "c1cnoc1",
    "c1nc[nH]n1", "c1c[nH]nn1", "c1nnco1", "c1ncon1", "c1nn[nH]n1", "c1ccc2[nH]ccc2c1", "c1ccc2occc2c1", "c1ccc2[nH]cnc2c1",
    "c1ccc2[nH]ncc2c1", "c1ccc2ocnc2c1", "c1ccc2[nH]nnc2c1", "c1cnc2[nH]ccc2c1", "c1ccn2cncc2c1", "c1ccn2ccnc2c1",
    "c1ccn2nccc2c1", "c1ncc2[nH]cnc2n1", "c1ccn2cccc2c1",
)
# Groups that replace a hydrogen; the first atom is bonded to the skeleton. "=O" makes a carbonyl of a CH2.
GROUPS = (
    "C", "CC", "CCC", "C(C)C", "C(C)(C)C", "C1CC1", "C=C", "C#C", "CC=C", "F", "C(F)F", "C(F)(F)F", "O", "OC", "OCC", "CO", "CCO",
    "COC", "N", "NC", "N(C)C", "CN", "CNC", "CN(C)C", "CCN", "C=O", "C(C)=O", "C(=O)O", "C(=O)OC", "C(N)=O", "C(=O)NC", "OC(C)=O",
    "NC(C)=O", "NC=O", "C#N", "CC#N", "CF", "[N+](=O)[O-]", "=O",
)
# What a chemist would not put in a bottle.
UNSTABLE = (
    "[N,O,F;!+;!-]-[N,O,F;!+;!-]",                        # N-N, N-O, O-O, N-F, O-F outside aromatic rings and nitro
    "[n,o]-[N,O,F]",                                      # the same on an aromatic ring's heteroatom
    "[CX4]([NX3])[NX3,OX2,F]", "[CX4]([OX2H])[OX2]", "[CX4]([OX2])F", "[CX4]([n])[NX3,OX2H,F]",   # aminals, hydrates, ...
    "[CX4]([OX2])([OX2])[OX2]",                           # orthoesters
    "[OX2H][CX3]=[CX3]", "[NX3;!$(N[CX3]=O)][CX3;!$(C=O)]=[CX3;!$(C-C=O)]",                       # enols, enamines
    "[NX3,OX2,F]C#[C,N]", "[NX3,OX2H]C(=O)[OX2H]", "[OX2H]C(=O)O", "C(=O)F", "C(=O)OC=O", "nC(=O)[OX2H]",
    "[CX3H1](=O)[CX4][NX3H1,NX3H2]", "[CX3H1](=O)[CX3](=O)", "[CX3H1](=O)C#[C,N]", "C(=O)C(=O)[OX2H]",
    "[CX3]=[NX2;H1]", "C=C=[C,O,N]", "C#CC#C", "N#CC#[C,N]", "N#C[CX4](C#N)", "N#CC(=O)", "N#CC(F)F",
    "[OX2H,NX3H2][CX3]=[NX2]", "[CX3](F)=[CX3](F)", "[CX3]([F])=[CX3][OX2,NX3]",
    "[r3]=[*]", "C1=CC1", "[#8r3,#7r3]1~[*]~[*]1[O,N,F,$(C#[C,N])]", "[r3][NX3H2,OX2H]", "[r3;#7][C;!$([CX4])]",
    "[r4]=[r4][O,N,F]", "[#6;r4]1(=O)[#8;r4][#6;r4][#6;r4]1(=O)", "[$([CX3](=O)[CX3]=O)]1[CX3](=O)[*][*]1",
    "O=[CX3;R]1[CX3;R](=O)[CX3;R]1", "O=[CX3;r5]1[CX3](=O)[CX3](=O)*~*1", "O=[#6;r5]1~[#6]=[#6]~[#6]=[#6]1",
    "[CX3](=O)[CX3](=O)[CX3]=O", "[N+](=O)[O-].[N+](=O)[O-]", "[CX4][N+](=O)[O-]", "[C;!a]=,#[C;!a][N+](=O)[O-]", "C(=O)[N+](=O)[O-]",
    "[n][N+]", "[N;!+;!a][N+]", "O[N+](=O)[O-]", "O=[CX3;r6]1C=CC=CC1", "[R]=[R]=[*]",
)
# fmt: on
_UNSTABLE = [Chem.MolFromSmarts(pattern) for pattern in UNSTABLE]


def _canonical(mol: Chem.Mol) -> str | None:
    try:
        Chem.SanitizeMol(mol)
    except (Chem.MolSanitizeException, ValueError):
        return None
    return Chem.MolToSmiles(mol)


def _substitute(smiles: str, group: str) -> set[str]:
    """Return all molecules in which `group` replaces one hydrogen of `smiles`, or two for "=O"."""
    mol = Chem.MolFromSmiles(smiles)
    double = group.startswith("=")
    piece = Chem.MolFromSmiles(group.lstrip("="))
    products = set()
    for atom in mol.GetAtoms():
        if atom.GetTotalNumHs() < 1 + double or (double and (atom.GetSymbol() != "C" or atom.GetIsAromatic())):
            continue
        grown = Chem.RWMol(Chem.CombineMols(mol, piece))
        bond = Chem.BondType.DOUBLE if double else Chem.BondType.SINGLE
        grown.AddBond(atom.GetIdx(), mol.GetNumAtoms(), bond)
        site = grown.GetAtomWithIdx(atom.GetIdx())
        if site.GetNumExplicitHs():
            site.SetNumExplicitHs(site.GetNumExplicitHs() - 1)
        product = _canonical(grown.GetMol())
        if product is not None:
            products.add(product)
    return products


def heavy_atoms(smiles: str) -> int:
    """Return the number of atoms other than hydrogen."""
    return Chem.MolFromSmiles(smiles).GetNumAtoms()


def is_stable(smiles: str) -> bool:
    """Return whether no unstable pattern is present and heteroatoms do not outnumber carbon by much."""
    mol = Chem.MolFromSmiles(smiles)
    if any(mol.HasSubstructMatch(pattern) for pattern in _UNSTABLE):
        return False
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    aromatic_nitrogen = sum(a.GetIsAromatic() and a.GetSymbol() == "N" for a in mol.GetAtoms())
    polar = symbols.count("N") + symbols.count("O") - aromatic_nitrogen
    return polar <= max(1, symbols.count("C")) and symbols.count("F") <= 4


def skeletons(max_heavy: int) -> set[str]:
    """Return all alkanes and the ring systems of up to `max_heavy` atoms."""
    level = {"C"}
    found = set(level)
    while level and heavy_atoms(next(iter(level))) < max_heavy:
        level = set().union(*(_substitute(smiles, "C") for smiles in sorted(level)))
        found |= level
    return found | {str(Chem.CanonSmiles(smiles)) for smiles in SKELETONS if heavy_atoms(smiles) <= max_heavy}


def enumerate_molecules(max_heavy: int = MAX_HEAVY) -> list[str]:
    """Return the canonical SMILES of the built-in set, by heavy atoms, then alphabetically."""
    level = skeletons(max_heavy)
    found = set(level)
    sizes = {group: heavy_atoms(group.lstrip("=")) for group in GROUPS}
    for _ in range(MAX_GROUPS):
        grown: set[str] = set()
        for smiles in sorted(level):
            room = max_heavy - heavy_atoms(smiles)
            for group in GROUPS:
                if sizes[group] <= room:
                    grown |= _substitute(smiles, group)
        level = {smiles for smiles in grown - found if is_stable(smiles)}
        found |= level
    by_size: dict[int, list[str]] = {}
    for smiles in found:
        if is_stable(smiles):
            by_size.setdefault(heavy_atoms(smiles), []).append(smiles)
    chosen: list[str] = []
    for size in sorted(by_size):
        kept = by_size[size] if size <= SMALL else _sample(by_size[size], SAMPLE[size])
        chosen += sorted(kept)
        print(f"{size} heavy atoms: {len(by_size[size])} molecules enumerated, {len(kept)} kept")
    return chosen


def _sample(molecules: list[str], count: int) -> list[str]:
    """Return the first `count` molecules by hash, half of them aromatic if there are enough.

    Aromatic SMILES have a lower-case letter.
    """
    ranked = sorted(molecules, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
    aromatic = [smiles for smiles in ranked if smiles != smiles.upper()][: count // 2]
    return aromatic + [smiles for smiles in ranked if smiles == smiles.upper()][: count - len(aromatic)]


def labels(smiles: str) -> tuple[float, float, float]:
    """Return Crippen logP, Crippen molar refractivity (cm^3/mol) and topological polar surface area (A^2)."""
    mol = Chem.MolFromSmiles(smiles)
    return Crippen.MolLogP(mol), Crippen.MolMR(mol), rdMolDescriptors.CalcTPSA(mol)


def write(path: Path, max_heavy: int = MAX_HEAVY) -> None:
    """Write the molecules and their labels as CSV."""
    molecules = enumerate_molecules(max_heavy)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("smiles", "logp", "mr", "tpsa"))
        for smiles in molecules:
            log_p, refractivity, area = labels(smiles)
            writer.writerow((smiles, f"{log_p:.4f}", f"{refractivity:.3f}", f"{area:.2f}"))


if __name__ == "__main__":
    RDLogger.DisableLog("rdApp.*")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("molecules.csv"))
    write(parser.parse_args().output)
