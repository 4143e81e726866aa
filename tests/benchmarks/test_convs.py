"""The comparison of one layer with PyG's times every kind of work and stops at wrong results."""

import pytest
from compiler import needs_extension
from torch.nn.modules.module import register_module_forward_hook

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import FusedGCNConv
from molgcn_benchmark.convs import WORKS, compare, molecule_case, random_case

pytestmark = needs_extension


def test_every_kind_of_work_is_timed():
    molecules = PackedMolecules.from_smiles(["CCO", "c1ccccc1"])
    for case in (molecule_case(molecules, 8, 4), random_case(50, 200, 6, 3)):
        rows = compare(case, repeats=1)
        assert [row.work for row in rows] == list(WORKS)
        assert [len(row.milliseconds) for row in rows] == [5, 4, 2]
        assert all(time > 0 for row in rows for time in row.milliseconds.values())
    assert molecule_case(molecules, 8, 4).edge_index.shape[1] > 8 * 4


def test_wrong_numbers_are_not_timed():
    with (
        register_module_forward_hook(lambda module, _, out: out + 1 if isinstance(module, FusedGCNConv) else None),
        pytest.raises(UserError, match="fused is wrong on random graph"),
    ):
        compare(random_case(50, 200, 6, 3), repeats=1)
