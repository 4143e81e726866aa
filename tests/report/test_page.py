"""The page shows what was measured, needs no other file and runs no foreign code."""

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from molgcn.data import PackedMolecules
from molgcn.metrics.comparison import Comparison, Interval
from molgcn.report import numbers
from molgcn.report.numbers import number_group
from molgcn.report.page import number, write_page
from molgcn.report.subject import Subject, Trainings, Uncertainty

SMILES = ["CCO", "c1ccccc1O", "c1ccccc1N", "C1CC1", "CC(C)C", "c1ccncc1", "C", "O"]
VOID = {"meta", "img", "br", "link", "input"}
pytestmark = pytest.mark.usefixtures("blank_figures")


FOUND_ELSEWHERE = """
import sys
import molgcn.report
molgcn.report.__spec__.submodule_search_locations.insert(0, sys.argv[1])  # as an editable install does with a folder beside the checkout
from molgcn.report.page import render
print(render("sections/curves.html.jinja", picture="the picture"))
"""


class Page(HTMLParser):
    """A parser that collects tags, addresses and text of a page, and checks that its tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.text, self.open = [], [], [], []
        self.attributes, self.styles = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.styles += [value for name, value in attrs if name == "style"]
        self.addresses += [value for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def write_report(path, about):
    write_page(path, about, [number_group(about)])


def subject(smiles=SMILES, names=("logp",), units=("A^2",), **changes):
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(len(SMILES), len(names))).astype(np.float32)
    graphs = PackedMolecules.from_smiles(SMILES, features="general")
    molecules = PackedMolecules.from_pyg(graphs.to_pyg(), smiles=smiles)
    molecules.targets = targets
    values = {
        "title": "run on data",
        "facts": {"Model": "GCN"},
        "metrics": {f"test/{kind}/{name}": 0.5 for kind in ("mae", "rmse", "r2") for name in names},
        "sizes": {"test": len(SMILES)},
        "labels": {"test": [len(SMILES)] * len(names)},
        "part": "test",
        "molecules": molecules,
        "predictions": targets + rng.normal(size=targets.shape) / 10,
        "names": names,
        "units": units,
    }
    return Subject(**{**values, **changes})


def write(tmp_path, **changes):
    write_report(tmp_path / "report.html", subject(**changes))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    return (tmp_path / "report.html").read_text()


def test_numbers_with_units(tmp_path):
    one = subject()
    page = Page(write(tmp_path))
    text = " ".join(" ".join(page.text).split())
    error = one.predictions[:, 0] - one.molecules.targets[:, 0]
    assert f"{np.abs(error).mean():.4g} A^2 mean absolute error" in text
    assert "in A^2" in text
    tiles = re.findall(r'<div class="tile"><b>(.*?)</b>', write(tmp_path))
    assert len(tiles) == 5
    assert all(tile.endswith((" <span>A^2</span>", " %")) for tile in tiles)
    assert "run on data" in text
    worst = int(np.abs(error).argmax())
    first = text.split("The worst molecules")[1].split(" row ")[1].split()
    assert first[:2] == [str(worst), SMILES[worst]]
    assert "By scaffold The 8 molecules whose scaffold fewer than 5 share: MAE" in text
    assert page.tags.count("img") == 3 + len(SMILES)
    assert " labels " not in text  # none are missing


def test_it_needs_nothing_beside_it_and_runs_nothing(tmp_path):
    text = write(tmp_path, names=("a", "b"), units=("", "eV"))
    page = Page(text)
    assert all(address.startswith(("data:image/", "#target-")) for address in page.addresses)
    assert not {"script", "iframe", "object", "embed", "link", "form"} & {*page.tags}
    assert not [name for name in page.attributes if name.startswith("on")]
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import", text)


def test_on_a_narrow_screen_tables_and_pictures_scroll_inside_the_page(tmp_path):
    (tmp_path / "p.png").write_bytes(b"")
    about = subject(
        pictures={"loss": tmp_path / "p.png"},
        trainings=Trainings({"logp": ["test MAE"] * 9}, {"logp": [("fold_0", ["0.5"] * 9)]}, {"logp": []}, ""),
        uncertainty=Uncertainty("calibrated", False, 0.1, {"logp": {"NLL": (1.0, 0.5)}}, {"logp": "data:image/png;base64,"}),
    )
    write_report(tmp_path / "report.html", about)
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert page.tags.count("table") == 4
    assert re.search(r"^  table \{ display: block;[^}]* max-width: 100%; overflow-x: auto;", text, re.MULTILINE)
    assert all(style.startswith("width: ") and style.endswith("%") for style in page.styles)
    for caption in ("loss", "calibration of logp"):
        assert re.search(rf'<div class="wide"><img [^>]*alt="{caption}"></div>', text)


def test_a_script_is_text(tmp_path, blank_figures, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", blank_figures)
    scripts = [f"<script>alert({number})</script>" for number in range(6)]
    smiles, name, unit, title, fact, value = scripts
    smiles = [smiles, '"><img src=x onerror=alert(1)>', *SMILES[2:]]
    text = write(tmp_path, smiles=smiles, names=(name,), units=(unit,), title=title, facts={fact: value})
    page = Page(text)
    assert "script" not in page.tags
    assert "onerror" not in page.attributes
    assert "<script" not in text
    for script in scripts:
        assert script in "".join(page.text)
    for picture in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", text):
        assert b"<script" not in base64.b64decode(picture)


def test_missing_values_and_predictions(tmp_path):
    one = subject(names=("a", "b"), units=("", ""))
    one.molecules.targets[:3, 0] = np.nan
    one.molecules.targets[:, 1] = np.nan
    one.predictions[4, 0] = np.inf
    metrics = {key: float("nan") for key in one.metrics}
    write_report(
        tmp_path / "r.html",
        subject(
            names=("a", "b"),
            units=("", ""),
            molecules=one.molecules,
            predictions=one.predictions,
            metrics=metrics,
            labels={"test": one.molecules.num_labels},
        ),
    )
    text = " ".join(" ".join(Page((tmp_path / "r.html").read_text()).text).split())
    assert "molecules labels MAE" in text
    assert "a test 8 5 \u2013" in text
    assert "b test 8 0 \u2013" in text
    assert "3 molecules have no true value. 1 predictions are not finite numbers" in text
    assert "There is no molecule with both a true value and a finite prediction" in text


def test_molecules_without_smiles(tmp_path):
    text = write(tmp_path, smiles=None)
    assert "By scaffold" not in text
    assert "no drawing" in text


def test_one_molecule_and_no_error_at_all(tmp_path):
    one = subject()
    values = {"molecules": one.molecules[[0]], "predictions": one.molecules.targets[[0]], "sizes": {"test": 1}, "labels": {"test": [1]}}
    write_report(tmp_path / "r.html", subject(**values))
    text = " ".join(Page((tmp_path / "r.html").read_text()).text)
    assert "By size" not in text  # a single molecule is no group
    assert "The 1 molecules whose scaffold" in " ".join(text.split())


def test_values_show_the_digits_in_which_they_differ(tmp_path):
    one = subject()
    one.molecules.targets = 1e8 + np.arange(len(SMILES), dtype=float)[:, None]
    write_report(tmp_path / "r.html", subject(molecules=one.molecules, predictions=one.molecules.targets + 0.25))
    text = " ".join(" ".join(Page((tmp_path / "r.html").read_text()).text).split())
    assert "true 100000003 predicted 100000003.2 error +0.25" in text


def test_numbers():
    assert number(-0.0123456) == "\u22120.01235"
    assert number(float("nan")) == number(float("inf")) == "\u2013"


def test_without_drawings_molecules_and_scaffolds_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(numbers, "draw", lambda smiles: None)
    smiles = ["c1ccccc1C", "c1ccccc1O", "c1ccccc1N", "c1ccccc1CC", "c1ccccc1F", "CCO", "C", "O"]
    write_report(tmp_path / "report.html", subject(smiles))
    text = "\n".join(Page((tmp_path / "report.html").read_text()).text).split("\n")
    assert {*smiles, "c1ccccc1", "no drawing"} <= set(text)
    assert "The 1 Bemis\u2013Murcko scaffolds that at least 5 molecules share" in " ".join(text)


def test_intervals_baselines_and_means_stand_with_the_values(tmp_path):
    comparison = Comparison(
        means={"test/mae": 0.75},
        counted={"test/mae": 1},
        intervals={"test/mae/a": Interval(0.25, 0.625, 7)},
        resamples=1000,
        baselines={"random forest": {"test/mae/a": 0.875, "test/mae/b": float("nan")}},
    )
    text = " ".join(" ".join(Page(write(tmp_path, names=("a", "b"), units=("", ""), comparison=comparison)).text).split())
    assert "mean of 2 targets, of which at least 1 define a metric test 0.75" in text
    assert "a test 8 0.5 0.25 to 0.625 0.5 0.5 random forest 0.875 b test" in text
    assert "over 1,000 bootstrap resamples" in text and "Up to 7 resamples are left out of an interval" in text
    assert "Baselines on the same molecules: a random forest of 100 trees" in text


@pytest.mark.slow
def test_templates_are_those_beside_the_code(tmp_path):
    run = subprocess.run([sys.executable, "-c", FOUND_ELSEWHERE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "the picture" in run.stdout, run.stderr
