import json

import pytest

from molgcn.errors import UserError
from molgcn.training.members import FILE, members_of, trainings_of, write_members


def test_a_single_training_is_its_own(tmp_path):
    assert (members_of(tmp_path), trainings_of(tmp_path)) == ([], [tmp_path])


def test_members_may_have_members(tmp_path):
    for fold in ("fold_0", "fold_1"):
        (tmp_path / "repeat_0" / fold).mkdir(parents=True)
    write_members(tmp_path, ["repeat_0/fold_0", "repeat_0/fold_1"])
    write_members(tmp_path / "repeat_0" / "fold_1", ["member_0", "member_1"])
    below = ["repeat_0/fold_0", "repeat_0/fold_1/member_0", "repeat_0/fold_1/member_1"]
    assert trainings_of(tmp_path) == [tmp_path / name for name in below]


@pytest.mark.parametrize("names", [["../other"], ["/etc"], ["fold_0/.."], [], "fold_0", [3], ["fold_0\n"], {"fold_0": 1}])
def test_no_folder_outside_is_named(names, tmp_path):
    (tmp_path / FILE).write_text(json.dumps(names))
    with pytest.raises(UserError, match="does not name the members of a run"):
        members_of(tmp_path)
