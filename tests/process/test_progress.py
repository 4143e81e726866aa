import re
import time

import pytest

from molgcn.process.progress import progress_bar


class Terminal:
    """A standard error that claims to be a terminal."""

    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def work(bar, steps=30):
    with bar:
        for _ in range(steps):
            time.sleep(0.01)
            bar.update(1)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"total": 30}, r"reading:.*/30 \["),
        ({}, r"reading: \d+it"),
        ({"total": 30, "bar_format": "{desc} |{bar}|", "leave": False}, r"reading \|"),
    ],
)
def test_a_pipe_gets_whole_lines_now_and_then(capsys, options, line):
    work(progress_bar(seconds=0.1, desc="reading", **options))
    written = capsys.readouterr().err
    assert "\r" not in written
    assert written.endswith("\n")
    lines = written.splitlines()
    assert 1 <= len(lines) <= 5
    assert all(re.match(line, one) for one in lines), lines
    work(progress_bar(seconds=60, desc="reading", **options), steps=3)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    work(progress_bar(total=3, desc="reading"), steps=3)
    assert "\rreading: 100%" in terminal.text
    work(progress_bar(False, total=3), steps=3)
    monkeypatch.setattr("sys.stderr", None)  # Python sets this after 2>&-
    work(progress_bar(total=3), steps=3)
    assert capsys.readouterr().err == ""
