"""One layer beside PyG's: every kind of work is timed, and wrong numbers stop it."""

import pytest
import torch
from compiler import needs_extension

from molgcn.benchmark import convs
from molgcn.benchmark.convs import WORKS, compare, molecule_case, random_case
from molgcn.data import PackedMolecules
from molgcn.errors import UserError

pytestmark = needs_extension


def test_every_kind_of_work_is_timed():
    molecules = PackedMolecules.from_smiles(["CCO", "c1ccccc1"], num_workers=1)
    for case in (molecule_case(molecules, 8, 4), random_case(50, 200, 6, 3)):
        rows = compare(case, repeats=1)
        assert [row.work for row in rows] == list(WORKS)
        assert [len(row.milliseconds) for row in rows] == [5, 4, 2]
        assert all(time > 0 for row in rows for time in row.milliseconds.values())
    assert molecule_case(molecules, 8, 4).edge_index.shape[1] > 8 * 4


def test_wrong_numbers_are_not_timed(monkeypatch):
    layers = convs._layers

    def spoiled(case):
        made = layers(case)
        with torch.no_grad():
            made["fused"].lin.weight[0, 0] += 1
        return made

    monkeypatch.setattr(convs, "_layers", spoiled)
    with pytest.raises(UserError, match="fused is wrong on random graph"):
        compare(random_case(50, 200, 6, 3), repeats=1)
