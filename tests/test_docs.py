"""Links in the documents lead to files that exist, and the version that they name is right."""

import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SKIPPED = (".", "build", "runs", "multirun")  # folders without text of ours
DOCUMENTS = sorted(path for path in ROOT.rglob("*.md") if not any(part.startswith(SKIPPED) for part in path.relative_to(ROOT).parts[:-1]))
GENERATED = re.compile(r"\||.*torch-geometric")  # rows of tables and facts of a machine, which the scripts of benchmarks/ write
WIDTH = 120
FIGURES = sorted((ROOT / "docs" / "figures").glob("*.svg"))
EXAMPLES = {
    f"{path.name}-{number}": code
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "extending.md"  # tests/test_extending.py runs its examples
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
    if "onnx_inputs" not in code  # tests/test_onnx_inputs.py runs it without PyTorch
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("molgcn", "conf", "docs", "benchmarks", "notebooks", "data", "cpu", "cuda", "tests")


def test_links_and_named_files_exist():
    for path in DOCUMENTS:
        text = path.read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("https://") or (path.parent / target).exists(), (path, target)
        for name in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+\.\w+)`", text):
            assert (ROOT / name).exists(), (path, name)


def test_lines_can_be_read_in_a_diff():
    for path in DOCUMENTS:
        if path.name == "report.md":  # which the benchmark writes whole
            continue
        generated = "benchmarks/results" in path.as_posix()
        long = [line for line in path.read_text().splitlines() if len(line) > WIDTH and not (generated and GENERATED.match(line))]
        assert not long, path


def test_a_decision_is_one_page():
    words = {path.stem: len(path.read_text().split()) for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert {name: count for name, count in words.items() if count > 600} == {}


@pytest.mark.parametrize("name", EXAMPLES)
def test_python_examples_run_and_have_the_shapes_that_they_state(name, trained_run):
    code = EXAMPLES[name].replace("runs/<run>", str(trained_run.folder))
    scope: dict = {}
    exec(code, scope)
    for variable, shape in re.findall(r"^(\w+) = .*# \[([\d, ]+)\]$", code, re.MULTILINE):
        assert list(scope[variable].shape) == [int(size) for size in shape.split(",")]


@pytest.mark.slow  # 10 s, and CI builds the site by the Makefile
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<math" in (tmp_path / "networks.html").read_text()


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_figures_are_drawn_for_light_and_dark_and_used(path):
    svg = ET.parse(path).getroot()
    assert svg.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in path.read_text()
    width = float(svg.attrib["width"])
    for element in svg.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width
    assert any(f"figures/{path.name}" in document.read_text() for document in DOCUMENTS)


def test_citation_licence_and_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## [{PROJECT['version']}] - " in changes
    assert {*re.findall(r"^### (.*)", changes, re.MULTILINE)} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_extra_that_is_advised_exists():
    """Such as molgcn[export] in a message, and -e ".[cuda]" in a document."""
    files = (path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".md", ".yaml", ".ipynb"))
    texts = (path.read_text() for path in [*files, ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml"])
    advised = {extra for text in texts for extras in re.findall(r"(?:\bmolgcn|[ \"]\.)\[([a-z,]+)\]", text) for extra in extras.split(",")}
    assert {"export", "cuda", "sweep", "dev"} <= advised <= PROJECT["optional-dependencies"].keys()


def test_the_search_and_launchers_have_their_extras():
    extras = PROJECT["optional-dependencies"]
    assert any(name.startswith("optuna>=4") for name in extras["sweep"])
    for extra in ("sweep", "launchers", "cuda", "tensorboard"):
        assert re.search(rf"molgcn\[[\w,]*{extra}", extras["test"][0])
