"""A pass over a file of molecules."""

from molgcn.data.formats import Record
from molgcn.data.text import open_text
from molgcn.screening.run import Progress


def test_progress_is_that_of_the_rows_that_are_done(tmp_path):
    """They are read long before, to be spread over processes."""
    (tmp_path / "x.smi").write_text("C\n" * 100)
    with open_text(tmp_path / "x.smi") as text:
        progress = Progress(text)
        assert len([*progress.reading(Record([line], line) for line in text)]) == 100
        shown = []
        for count in (10, 40, 50):
            progress.update(count)
            shown.append(progress._bar.n)
        progress.close()
    assert shown == [20, 100, 200] and progress.count == 100
