import pytest

from molgcn.errors import UserError
from molgcn.files.json_file import read_json, write_json


def test_values_go_around(tmp_path):
    write_json(tmp_path / "a.json", {"a": [1, None]})
    assert read_json(tmp_path / "a.json") == {"a": [1, None]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_full_disk_leaves_what_was_there(tmp_path, full_disk):
    write_json(tmp_path / "a.json", 1)
    with full_disk(1), pytest.raises(OSError, match="File too large"):
        write_json(tmp_path / "a.json", 2)
    assert read_json(tmp_path / "a.json") == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", ["", '{"a":', "\x00"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(UserError, match=r"result\.json is damaged"):
        read_json(tmp_path / "result.json")
