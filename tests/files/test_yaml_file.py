import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from molgcn.config.run import Config, parse
from molgcn.errors import UserError
from molgcn.files.yaml_file import read_yaml, yaml_text

BOMB = "a: &a [x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12))


def test_what_a_run_writes_is_read_as_it_is(tmp_path):
    values = parse(Config, {"dataset": {"name": "builtin", "path": "a ${b}", "targets": ["x", "y"]}, "optimizer": {"lr": 1e-4}}).to_dict()
    (tmp_path / "config.yaml").write_text(yaml_text(values))
    read = read_yaml(tmp_path / "config.yaml", dict)
    assert parse(Config, read) == parse(Config, values)
    (tmp_path / "overrides.yaml").write_text("- a=1\n- b=${c}\n")
    assert read_yaml(tmp_path / "overrides.yaml", list) == ["a=1", "b=${c}"]


@given(st.recursive(st.text() | st.floats(allow_nan=False) | st.integers() | st.booleans() | st.none(), st.lists, max_leaves=8))
@example(["1e3", "-1_0E+3", "1.5", "0x1f", "null", "~", "", "yes", "2020-01-01", "a: b", "# a", "a\n b", "\x85", "inf", "${a}"])
def test_values_are_read_as_they_were(values):
    shared = {"a": [values], "n": values, "tuple": (values,)}
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "config.yaml").write_text(yaml_text(shared), encoding="utf-8", newline="")
        assert read_yaml(path, dict) == {"a": [values], "n": values, "tuple": [values]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "anchors or aliases"),
        ("a: " + "[" * 50_000, "nested more than 20 deep"),
        ("a: b\n" * 100_000, "more than 262,144 bytes"),
        ("- a", "something else"),
        ("3", "Invalid"),
        ("a: [", "expected"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: ${", "a"),
        ("a: \udcff", "decode"),
    ],
    ids=range(9),
)
def test_other_files_are_refused(text, reason, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=rf"config\.yaml is damaged or cannot be read: .*{reason}.*Restore") as error:
        read_yaml(path, dict)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_yaml(tmp_path / "config.yaml", dict)
