from itertools import combinations

import numpy as np
import pytest
from split_sets import as_sets

from molgcn.data.splits.drawn import scaffold_split
from molgcn.data.splits.groups import join_groups, scaffold_groups
from molgcn.data.splits.parts import PARTS
from molgcn.errors import UserError


def ring_molecules():
    rings = ["c1ccccc1", "C1CCCCC1", "C1CCCC1", "c1ccncc1", "c1ccoc1", "C1CCOC1", "C1CCNC1", "C1CC1", "C1CCC1", "c1cc[nH]c1"]
    return [ring + "C" * tail for ring in rings for tail in range(1 + 4 * (ring == "c1ccccc1"))] + ["C" * n for n in range(1, 7)]


def test_scaffolds_stay_together():
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    smiles = ring_molecules()
    split = scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=3)
    assert sorted(np.concatenate([split[part] for part in PARTS]).tolist()) == list(range(len(smiles)))
    of_part = {part: {MurckoScaffoldSmiles(smiles[i]) for i in split[part]} for part in PARTS}
    assert not of_part["train"] & of_part["val"]
    assert not of_part["train"] & of_part["test"]
    assert not of_part["val"] & of_part["test"]
    assert as_sets(split) == as_sets(scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=3))
    assert as_sets(split) != as_sets(scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=4))


def test_scaffolds_by_numbers_of_molecules_leave_the_rest_out():
    smiles = ring_molecules()
    split = scaffold_split(scaffold_groups(smiles), (8, 3, 3), seed=3)
    assert all(0 < len(split[part]) <= size for part, size in zip(PARTS, (8, 3, 3), strict=True))


def test_scaffolds_that_share_a_molecule_are_one():
    smiles = ring_molecules()
    without = scaffold_split(scaffold_groups(smiles), (0.6, 0.2, 0.2), seed=3)
    assert as_sets(scaffold_split(join_groups(scaffold_groups(smiles), np.arange(len(smiles))), (0.6, 0.2, 0.2), seed=3)) == as_sets(
        without
    )
    rings = [smiles.index(one) for one in ("C1CC1", "C1CCC1", "c1ccoc1")]
    groups = np.arange(len(smiles))
    groups[rings] = rings[0]
    joined = scaffold_split(join_groups(scaffold_groups(smiles), groups), (0.6, 0.2, 0.2), seed=3)
    assert len({part for part in PARTS if set(rings) & set(joined[part].tolist())}) == 1


def test_atom_maps_make_no_scaffolds_of_their_own():
    rings = ["[c:{}]1(C)[cH:{}][cH:2][cH:3][cH:4][cH:5]1", "[CH2:{}]1[CH:{}](C)[CH2:3]1", "[n:{}]1c(C)[cH:{}]ccc1"]
    smiles = [ring.format(number, number + 1) for ring in rings for number in (7, 8, 9)]
    split = scaffold_split(scaffold_groups(smiles), (0.34, 0.33, 0.33))
    assert sorted(split[part].tolist() for part in PARTS) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("size", [1, 3])
def test_seeds_draw_test_parts_that_share_no_more_than_chance(size):
    """Scaffolds of equal size are in another order with another seed, so that repeats test on other molecules."""
    tests = [set(scaffold_split(np.repeat(np.arange(300), size), seed=seed)["test"].tolist()) for seed in range(10)]
    shares = [len(one & other) / len(one) for one, other in combinations(tests, 2)]
    assert 0.07 < np.mean(shares) < 0.13 and max(shares) < 0.3


def test_too_few_scaffolds_are_an_error():
    with pytest.raises(UserError, match="different scaffolds"):
        scaffold_split(scaffold_groups(["C" * n for n in range(1, 20)]))


@pytest.mark.parametrize(
    ("largest", "fractions", "sizes"),
    [(360, (0.6, 0.2, 0.2), [384, 128, 128]), (520, (0.6, 0.2, 0.2), [520, 60, 60]), (360, (300, 50, 50), [210, 35, 35])],
)
def test_what_a_huge_scaffold_leaves_is_shared_out(largest, fractions, sizes):
    """In FreeSolv the molecules without rings are more than half of the set."""
    scaffolds = np.concatenate([np.zeros(largest, int), np.arange(1, 641 - largest)])
    split = scaffold_split(scaffolds, fractions)
    assert [len(split[part]) for part in PARTS] == sizes
