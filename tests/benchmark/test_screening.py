from molgcn.benchmark.screening import Shape, screen


def test_both_sides_predict_the_same(tmp_path):
    row = screen(["CCO", "c1ccccc1O", "C", "CC(=O)N"] * 40, Shape(3, 8), tmp_path)
    assert row.difference < 1e-5
    assert row.molecules == 160
    assert min(row.ours, row.pyg, row.parse, row.model, row.pyg_model) > 0
    assert len((tmp_path / "ours.csv").read_text().splitlines()) == 161
