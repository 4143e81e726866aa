from molgcn.data.splits.groups import column_groups


def test_equal_cells_are_a_group(caplog):
    assert column_groups(["a", "b", " a", "b ", "A", "1"], "site").tolist() == [0, 1, 0, 1, 2, 3]
    assert not caplog.records


def test_words_for_missing_numbers_are_names(caplog):
    assert column_groups(["US", "NA", "nan", "None", "na", "NA ", "nan", "None", "n/a", "null"], "site").tolist() == [
        0,
        1,
        2,
        3,
        4,
        1,
        2,
        3,
        5,
        6,
    ]
    assert not caplog.records


def test_only_an_empty_cell_is_no_group_and_is_counted(caplog):
    assert column_groups(["a", "", "b", "a", "  "], "site").tolist() == [0, 1, 2, 0, 3]
    assert "Column 'site' is empty for 2 of 5 molecules, each of which is a group of its own" in caplog.text
