import numpy as np
import pytest

from molgcn_benchmark.screening import Shape, screen


@pytest.mark.parametrize("members", [1, 3])
def test_both_sides_predict_the_same(tmp_path, members):
    row = screen(["CCO", "c1ccccc1O", "C", "CC(=O)N"] * 40, Shape(3, 8, members), tmp_path)
    assert row.difference < 1e-5
    assert row.molecules == 160
    assert min(row.ours, row.pyg, row.rdkit, row.parse, row.model, row.pyg_model) > 0
    assert len((tmp_path / "ours.csv").read_text().splitlines()) == 161
    tables = [
        np.loadtxt(tmp_path / name, delimiter=",", skiprows=1, usecols=range(1, 2 if members == 1 else 3))
        for name in ("ours.csv", "pyg.csv")
    ]
    tables = [table.reshape(160, -1) for table in tables]
    np.testing.assert_allclose(*tables, rtol=1e-4, atol=1e-6)
