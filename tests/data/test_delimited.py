import csv
import gzip
import io

from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.delimited import read_delimited
from molgcn.data.text import open_text

CELL = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r\ufeff"), max_size=6)
SEPARATORS = [",", ";", "\t"]


@st.composite
def tables(draw):
    """Draw a header that begins with smiles and a number, which cannot be blank or mistaken, and rows of as many cells."""
    width = draw(st.integers(2, 4))
    names = st.text("abcxyz", min_size=1, max_size=4)
    header = ["smiles", *draw(st.lists(names, min_size=width - 1, max_size=width - 1))]
    return [header, *draw(st.lists(st.lists(CELL, min_size=width, max_size=width), max_size=6))]


@given(
    tables(),
    st.sampled_from(SEPARATORS),
    st.sampled_from(SEPARATORS),
    st.sampled_from(["\n", "\r\n", "\r\n\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["utf-8", "utf-8-sig"]),
    st.booleans(),
)
def test_reads_what_pythons_csv_module_reads(tmp_path_factory, rows, separator, expected, end, quoting, encoding, packed):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator=end, quoting=quoting).writerows(rows)
    data = text.getvalue().encode(encoding)
    path = tmp_path_factory.mktemp("delimited") / "x"
    path.write_bytes(gzip.compress(data) if packed else data)
    with open_text(path) as opened:
        table = read_delimited(opened, expected, ["smiles"])
        assert (table.separator, table.header, list(table.rows)) == (separator, rows[0], rows[1:])
