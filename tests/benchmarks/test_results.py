import json
import runpy
import sys
from pathlib import Path

import pytest

from molgcn.errors import UserError
from molgcn_benchmark.results import Results, Table, check_machine, write_json, write_markdown

FACTS = {"cpu": "C", "threads": 2, "torch": "2", "molgcn": "1", "date": "today"}


def test_a_row_is_in_the_file_at_once_and_found_again(tmp_path):
    path = tmp_path / "sub" / "t.csv"
    table = Table(path, ("name", "size"))
    table.add({"name": "a", "size": 1, "norm": None, "ms": 0.5})
    assert path.read_text() == "name,size,norm,ms\na,1,,0.5\n"
    again = Table(path, ("name", "size"))
    assert again.find(name="a", size=1) == {"name": "a", "size": 1, "norm": None, "ms": 0.5}
    assert again.find(name="a", size=2) is None


def test_new_columns_and_replaced_rows_keep_the_others(tmp_path):
    table = Table(tmp_path / "t.csv", ("name",))
    table.add({"name": "a", "ms": 1.0})
    table.add({"name": "b", "ms": 2.0, "launches": 3})
    table.add({"name": "a", "ms": 4.0})
    assert Table(tmp_path / "t.csv", ("name",)).rows == [
        {"name": "b", "ms": 2.0, "launches": 3},
        {"name": "a", "ms": 4.0, "launches": None},
    ]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,size,ms\na,1,0.5\nb,2")
    table = Table(path, ("name", "size"))
    assert table.find(name="a", size=1) is not None and table.find(name="b", size=2) is None
    assert path.read_text() == "name,size,ms\na,1,0.5\n"


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("smiles,y\nC,1\n")
    with pytest.raises(UserError, match=r"t\.csv has no column name, size.*output="):
        Table(tmp_path / "t.csv", ("name", "size"))


def test_another_machine_or_version_is_refused(tmp_path):
    Results(tmp_path, FACTS).save()
    Results(tmp_path, {**FACTS, "date": "tomorrow"})
    with pytest.raises(UserError, match="holds measurements with torch 2; here it is 3"):
        Results(tmp_path, {**FACTS, "torch": "3"})
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(UserError, match=r"results\.json is not a result"):
        Results(tmp_path, FACTS)


@pytest.mark.parametrize("ending", ["json", "md"])
def test_a_files_own_facts_may_have_to_agree_too(tmp_path, ending):
    path = tmp_path / f"step.{ending}"
    check_machine(path, FACTS, "step.csv", "Give another file.")
    if ending == "json":
        write_json(path, FACTS | {"precision": "high"}, {})
    else:
        write_markdown(path, "Title", FACTS | {"precision": "high"}, ["| a |"])
    check_machine(path, FACTS, "step.csv", "Give another file.")
    with pytest.raises(UserError, match=r"step\.csv holds measurements with precision high; here it is medium.* Give another file\."):
        check_machine(path, FACTS | {"precision": "medium"}, "step.csv", "Give another file.", same=("precision",))


def test_results_json_holds_machine_and_rows(tmp_path):
    results = Results(tmp_path, FACTS)
    results.table("steps", ("name",)).add({"name": "a", "ms": 1.0})
    results.save()
    assert json.loads((tmp_path / "results.json").read_text()) == {"machine": FACTS, "steps": [{"name": "a", "ms": 1.0}]}


def test_a_report_has_its_facts_and_wrapped_paragraphs(tmp_path):
    row, paragraph, path = f"| {'cell ' * 40} |", "word " * 40, tmp_path / "new" / "folder" / "report.md"
    given = ("Title", {"cpu": "C", "threads": 2}, [paragraph, "", row])
    text = write_markdown(path, *given)
    assert path.read_text() == text == write_markdown(None, *given)
    title, _, *facts, _, first, second, _, last = text.splitlines()
    assert (title, facts, last) == ("# Title", ["- cpu: C", "- threads: 2"], row)
    assert f"{first} {second}".split() == paragraph.split() and len(first) <= 120
    assert list(path.parent.iterdir()) == [path]


def test_a_script_makes_the_folder_of_its_report(tmp_path, monkeypatch):
    output = tmp_path / "new" / "report.md"
    monkeypatch.setattr(sys, "argv", ["", "--data", str(tmp_path), "--chemprop", "true", "--sets", "--output", str(output)])
    runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "beside_chemprop.py"), run_name="__main__")
    assert output.read_text().startswith("# Chemprop beside this project\n")
