from molgcn.data.splits.column_groups import column_groups


def test_equal_cells_are_a_group_and_missing_ones_are_none():
    assert column_groups(["a", "b", " a", "", "NA", "b ", "A", "", "1"]).tolist() == [0, 1, 0, 2, 3, 1, 4, 5, 6]
