"""What the documents point at exists, and what they say of the version is so."""

import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIGURES = sorted((ROOT / "docs" / "figures").glob("*.svg"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("molgcn", "conf", "docs", "benchmarks", "notebooks", "data", "cpu", "cuda", "tests")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_named_files_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (path.parent / target).exists(), target
    for name in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+\.\w+)`", text):
        assert (ROOT / name).exists(), name


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
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_search_and_launchers_have_their_extras():
    extras = PROJECT["optional-dependencies"]
    assert any(name.startswith("optuna>=4") for name in extras["sweep"])
    for extra in ("sweep", "launchers", "cuda", "tensorboard"):
        assert re.search(rf"molgcn\[[\w,]*{extra}", extras["test"][0])
