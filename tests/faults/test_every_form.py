"""Every form of file: what is valid is read whole; what is not is refused by file and line; nothing is lost."""

import os
import shutil
from random import Random

import pytest
from fuzz_formats import FORMATS, Outcome, damaged_gzip
from fuzz_mutations import spoiled
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.runtime.errors import FoilsError, FormatError

BY_LINE = [name for name, form in FORMATS.items() if form.lines]
VALID = {"beir-corpus": 5, "beir-queries": 3, "beir-qrels": 3, "tevatron": 3, "tuples": 5, "trec-source": 3,
         "trec-run": 3}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("fuzz")
        patch.setenv("FOILS_CACHE", str(folder / "cache"))
        yield folder


@pytest.mark.parametrize("name", FORMATS)
def test_valid_files_are_read_whole(name, place):
    for example in FORMATS[name].examples():
        found = FORMATS[name].check(example, place / name)
        assert found.complaints == 0
        assert found.records == VALID.get(name, found.records)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30, derandomize=True)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3), which=st.integers(0, 5))
def test_spoiled_files_are_read_whole_or_refused_by_name(name, place, seeds, which):
    form = FORMATS[name]
    examples = form.examples()
    data = examples[which % len(examples)]
    for seed in seeds:
        data = spoiled(form, data, Random(seed), most=1)
    form.check(data, place / name)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20, derandomize=True)
@given(data=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_at_all(name, place, data):
    FORMATS[name].check(data, place / name)


BAD_LINES = [b"{", b"[1]", b"\xff", b'{"_id": "d1", "_id": "d2"}', b"a b", b"[" * 50_000, b"9" * 5000, b"\x00", b"{}"]


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("name", BY_LINE)
def test_one_bad_line_is_named(name, place, bad):
    form = FORMATS[name]
    lines = form.examples()[0].rstrip(b"\n").split(b"\n")
    path = place / name / form.file
    for at in range(1, len(lines) + 1):
        form.check(b"", place / name)  # makes the folder
        path.write_bytes(b"\r\n".join([*lines[:at], b"", bad, *lines[at:]]))
        with pytest.raises(FormatError) as caught:
            form.read(path)
        assert caught.value.line == at + 2
        assert str(caught.value).startswith(f"{path}:{at + 2}: ")
        assert "\n" not in str(caught.value)  # the others are fine


@pytest.mark.parametrize("name", BY_LINE)
def test_every_bad_line_is_counted(name, place):
    form = FORMATS[name]
    begin = form.examples()[0].split(b"\n")[0] + b"\n"
    assert form.check(begin + b"{\n" * 700, place / name) == Outcome(0, 700)
    assert form.check(begin + b"{\n" * 70_000, place / name) == Outcome(0, 1000)  # plainly of another kind


@pytest.mark.parametrize("name", BY_LINE)
def test_damaged_gzip(name, place):
    for data in damaged_gzip(FORMATS[name].examples()[0]):
        assert FORMATS[name].check(data, place / name).complaints


@pytest.mark.parametrize("name", BY_LINE)
def test_folders_and_pipes_in_the_place_of_files(name, place):
    form = FORMATS[name]
    path = place / f"{name}-special" / form.file
    path.mkdir(parents=True)
    with pytest.raises(FoilsError, match=path.name.partition(".")[0]):
        form.read(path)
    shutil.rmtree(path)
    os.mkfifo(path)  # opening it to read would wait for a writer for ever
    with pytest.raises(FoilsError, match=path.name.partition(".")[0]):
        form.read(path)
