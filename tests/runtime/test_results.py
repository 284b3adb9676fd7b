"""Tables keep every cell whole, however narrow the screen is."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.runtime.results import Table, print_tables, signed, with_ends
from screens import assert_whole, printed

WORDS = st.text("abcdefghijklmnop", min_size=1, max_size=9)
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
NUMBERS = st.floats(-999, 999).map("{:,.4f}".format)
INTERVALS = st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda ends: "{} [{}, {}]".format(*ends))


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from([TEXTS, NUMBERS, INTERVALS]), min_size=1, max_size=9))
    columns = [draw(TEXTS) for _ in range(len(kinds) + 1)]
    rows = [[draw(TEXTS), *(draw(kind) for kind in kinds)] for _ in range(draw(st.integers(1, 4)))]
    return Table("a table", columns, rows)


@given(table=tables(), width=st.sampled_from([60, 80, 120]))
def test_no_cell_is_cut_and_no_line_is_too_long(table, width):
    assert_whole([table], width)


def test_columns_that_do_not_fit_follow_below_behind_the_first():
    columns = ["source", *(f"measure {number}" for number in range(8))]
    text = printed([Table("Means", columns, [["bm25", *["+0.0335 [-0.0022, +0.0693]"] * 8]])], 80)
    assert text.count("bm25") == 4
    assert text.count("+0.0335 [-0.0022, +0.0693]") == 8


def test_two_columns_lead_where_the_first_does_not_tell_rows_apart():
    rows = [["tuned − base", measure, *["+0.0335 [-0.0022, +0.0693]"] * 4] for measure in ("nDCG@10", "AP", "R@100")]
    columns = ["systems", "measure", "a", "b", "c", "d"]
    assert [printed([Table("Differences", columns, rows)], 80).count(each) for each in ("nDCG@10", "AP")] == [4, 4]
    named = [["tuned", *rows[0][1:]], ["base", *rows[1][1:]]]
    assert printed([Table("Differences", columns, named)], 80).count("nDCG@10") == 1


@pytest.mark.parametrize(("value", "shown"), [(-0.00001, "+0.000"), (-0.0, "+0.000"), (-0.0006, "-0.001")])
def test_no_minus_stands_before_a_zero(value, shown):
    assert signed(value) == shown
    assert with_ends(value / 10, 0, value / 10) == f"{shown[:-3]}0{shown[-3:]} [+0.0000, {shown[:-3]}0{shown[-3:]}]"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [40, 60, 80])
def test_remarks_wrap_at_words_on_a_terminal_and_stay_in_one_line_elsewhere(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    remark = "In-batch negatives alone are the simplest choice and may do as well as any other of the sources here."
    for file, lines in ((Terminal(), -(-len(remark) // width)), (io.StringIO(), 1)):
        print_tables([Table(remark, ["a"], [["b"]], remark)], file)
        text = re.sub(r"\x1b\[\d*m", "", file.getvalue()).splitlines()
        assert (max(map(len, text)) <= width) == (lines > 1)
        assert all(word in " ".join(text).split() for word in remark.split())


def test_a_long_path_goes_on_in_the_next_line():
    path = "/a/long/path/" + "x" * 120
    text = printed([Table("Files", ["file", "rows"], [[path, "1,200"]])], 60)
    assert path in "".join(line.rstrip().removesuffix("1,200").strip() for line in text.splitlines())
    assert "1,200" in text


@pytest.mark.parametrize(("columns", "expected"), [("72", 72), ("", 160), ("0", 160), ("many", 160)])
def test_the_width_is_that_of_columns_or_160_without_a_terminal(monkeypatch, columns, expected):
    monkeypatch.setenv("COLUMNS", columns)
    file = io.StringIO()
    print_tables([Table("Texts", ["name", "text"], [["a", "word " * 80]])], file)
    assert expected - 10 < max(map(len, file.getvalue().splitlines())) <= expected
