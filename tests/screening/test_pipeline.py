import tracemalloc
from itertools import islice

import numpy as np
import pytest

from molgcn.data.formats import Record
from molgcn.data.workers import map_stream
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.pipeline import predict_records


@pytest.fixture(scope="module")
def ensemble(trained_run):
    return Ensemble.load([trained_run.folder])


def records(count, text="CO"):
    return (Record([text, str(number)], text) for number in range(count))


def peak(ensemble, count):
    tracemalloc.start()
    rows = sum(len(part.records) for part in predict_records(ensemble, records(count), "smiles", 256, 0))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == count
    return used


def test_memory_does_not_grow_with_the_stream(ensemble):
    peak(ensemble, 512)
    short, long = peak(ensemble, 2_000), peak(ensemble, 10_000)
    assert long < short + 300_000, (short, long)  # the rows themselves would take 3 MB


def test_long_records_come_few_at_a_time(ensemble):
    """A piece has as many characters as one or two records may have, so that a thousand long ones do not fill the memory."""
    long = (Record(["CO", "x" * 9_000_000], "CO") for _ in range(5))
    parts = list(predict_records(ensemble, long, "smiles", 1024, 0))
    assert [(part.start, len(part.records)) for part in parts] == [(0, 2), (2, 2), (4, 1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_little_is_read_ahead(workers):
    """Workers take no more from an endless stream than they need."""
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield [taken[-1]], f"chunk {taken[-1]}"

    stream = map_stream(sorted, endless(), workers)
    for number, (result, companion) in enumerate(islice(stream, 20)):
        assert (result, companion) == ([number], f"chunk {number}")
        assert len(taken) <= number + 2 * workers + 2
    stream.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_and_errors_keep_their_places(ensemble, workers):
    texts = [["CO", "C1", "CCN", "[Pt]"][number % 4] + "C" * (number % 3) * (number % 2 == 0) for number in range(3_000)]
    parts = list(predict_records(ensemble, (Record([text], text) for text in texts), "smiles", 700, workers))
    assert [part.start for part in parts] == [0, 700, 1400, 2100, 2800]
    assert [record.molecule for part in parts for record in part.records] == texts
    values = np.concatenate([part.values for part in parts])
    failed = sorted(part.start + place for part in parts for place in part.errors)
    assert failed == [row for row in range(3_000) if row % 4 in (1, 3)]
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(values).any(axis=1)), failed)
    for text in set(texts):
        same = values[[row for row in range(3_000) if texts[row] == text]]
        np.testing.assert_allclose(same, same[:1].repeat(len(same), 0), rtol=1e-5, atol=1e-5)
