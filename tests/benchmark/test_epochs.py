from molgcn.benchmark.epochs import compare

TINY = {
    "dataset": {"name": "builtin", "targets": ["logp"], "subset": 200, "features": "zinc"},
    "model": {"hidden_channels": 8, "num_layers": 2},
}


def test_one_row_a_backend_with_all_its_epochs():
    rows = compare([TINY], [("fused", "packed"), ("pyg", "pyg")], epochs=2, warm_up=1, rounds=2)
    assert [(row.backend, row.loader) for row in rows] == [("fused", "packed"), ("pyg", "pyg")]
    assert all(row.molecules == 160 and 0 < row.seconds < 60 and row.rate > 1 for row in rows)
