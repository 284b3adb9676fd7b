"""Docstrings in the styles that packages use, and the collection of an invented package and of a real one."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from foils.data import load_collection
from foils.data.read import pydocs_versions, read_pydocs, split_of
from foils.runtime.errors import InputError

REST = "The window falls from the middle to both ends as half a period of the cosine does, never below zero."
PACKAGE = {
    "__init__.py": """
        raise RuntimeError("this package must not be imported")
    """,
    "windows/_hann.py": f'''
        def hann(size):
            """Return a raised cosine window.

            It is Hann's. {REST}

            Parameters
            ----------
            size : int
                Number of points.
            """
            def inner():
                """Return what no reader of the package can call.

                {REST} Inner functions are their owner's business alone."""

        class Filter:
            """Filter a signal with coefficients of one's own.

            A signal passes through delays, each weighed by a coefficient, and their sum is what comes out of
            it at the far end."""

            def apply(self, signal):
                """Pass each channel through every delay line.

                Channels lie in rows. Where a row is shorter than the filter, zeros are taken to come before
                its first sample."""

            def _reset(self):
                """Set all delay lines to zero once more.

                {REST}"""

        if True:
            async def stream(signal):
                """Yield filtered samples as soon as possible.

                Blocks wait in a queue of bounded length; whoever writes faster than others read is held up
                here until they are done."""
    ''',
    "again.py": f'''
        def cosine_window(size):
            """Make the taper which is named after Hann.

            It is Hann's. {REST} Parameters: size : int, the number of points in it."""

        def raised(size):
            """Return a raised cosine window.

            An altogether different account of it that speaks about overlap and the reconstruction of frames
            in audio or in speech, at any rate."""

        def short(size):
            """Return the window's length in samples.

            As given."""

        def says_it_twice(size):
            """Multiply every frame by its weight.

            This will multiply every frame by its weight; then it adds frames where they overlap and returns the sum
            of all."""

        def signature(size):
            """signature(size) -> window

            Words enough follow here to make a document, but what precedes them is no sentence and so asks for
            nothing."""
    ''',
    "_private/secret.py": '"""Not read."""',
    "tests/helper.py": '"""Not read."""',
    "broken.py": "def f(:",
    "latin.py": "x = '\xe9'",
    "huge.py": "#" * 1_000_001,
}


def write_package(folder: Path, name: str = "tapers") -> None:
    for path, text in PACKAGE.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [line[8:] if line.startswith(" " * 8) else line for line in text.split("\n")]
        file.write_text("\n".join(lines), encoding="latin-1")


@pytest.fixture
def tapers(tmp_path, monkeypatch):
    write_package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return read_pydocs(["tapers"])


def test_the_invented_package_gives_exactly_its_public_documentation(tapers):
    hann = "tapers.windows._hann"
    assert {each.name: each.summary for each in tapers} == {
        f"{hann}.Filter": "Filter a signal with coefficients of one's own.",
        f"{hann}.Filter.apply": "Pass each channel through every delay line.",
        f"{hann}.stream": "Yield filtered samples as soon as possible.",
        "tapers.again.cosine_window": "Make the taper which is named after Hann.",
        "tapers.again.raised": "Return a raised cosine window.",
    }
    (text,) = (each.text for each in tapers if each.name == "tapers.again.cosine_window")
    assert text == f"It is Hann's. {REST} Parameters: size : int, the number of points in it."
    assert "tapers" not in sys.modules, "nothing is imported"
    assert pydocs_versions(["tapers"]) == {"tapers": ""}


def test_a_summary_of_common_words_is_left_out(tmp_path, monkeypatch):
    words = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}x" for i in range(60)]
    texts = {word: (f"Return the value {word} here.", " ".join(f"{word}{k}" for k in range(25))) for word in words}
    texts["get"] = "Return the value here.", " ".join(words[:30])
    functions = [f'def {name}():\n    """{summary}\n\n    {rest}"""' for name, (summary, rest) in texts.items()]
    (tmp_path / "commonplace.py").write_text("\n\n\n".join(functions))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [each.name for each in read_pydocs(["commonplace"])] == [f"commonplace.{word}" for word in words]


def test_bad_input_is_named_all_at_once(tapers):
    with pytest.raises(InputError, match=r"absent, numpy\.linalg, sys; expected names"):
        read_pydocs(["tapers", "sys", "absent", "numpy.linalg"])
    with pytest.raises(InputError, match="no documentation"):
        read_pydocs([])


@pytest.fixture(scope="module")
def jinja2():
    return read_pydocs(["jinja2"])


def test_a_real_package(jinja2):
    assert [each.name for each in jinja2] == sorted({each.name for each in jinja2})
    assert all(20 <= len(re.findall(r"[^\W_]+", each.text)) <= 200 for each in jinja2)
    assert not any(each.summary in each.text or "\n" in each.summary for each in jinja2)
    assert pydocs_versions(["jinja2"]) == {"jinja2": version("jinja2")}
    assert [split_of(name) for name in ("jinja2.filters", "jinja2.lexer", "rich.text")] == ["train", "test", "dev"]
    splits = {(each.module, split_of(each.module)) for each in jinja2}
    assert len(splits) == len({module for module, _ in splits}), "a module is in one split"


def test_same_result_elsewhere_and_in_another_process(jinja2, tmp_path):
    """Neither the order of sets, nor the folder of the package, nor the order of its files matters."""
    spec = find_spec("jinja2")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, tmp_path / "jinja2")
    code = "from foils.data.read import read_pydocs; print(read_pydocs(['jinja2']))"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}src"}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == repr(jinja2)


def test_packages_are_named_with_the_collection(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    both, one = load_collection("pydocs:jinja2, filelock"), load_collection("pydocs:filelock")
    assert {name.partition(".")[0] for name in both.documents["doc_id"].to_pylist()} == {"jinja2", "filelock"}
    names = [each.name for each in read_pydocs(["filelock"])]
    assert one.documents["doc_id"].to_pylist() == names
    assert one.queries["query_id"].to_pylist() == [f"q:{name}" for name in names]
    with pytest.raises(InputError, match="not installed as Python source: nowhere"):
        load_collection("pydocs:nowhere")


def test_what_is_read_of_a_docstring(tmp_path, monkeypatch):
    """Doctests, underlines, roles and quotes go; a signature, a section or an announcement is no summary."""
    norm = f"""Return the `n`-th norm of :class:`numpy.ndarray` x,
    i.e. its length.

    {REST}

    Examples
    --------
    >>> norm([3, 4])
    5.0

    Notes
    -----
    See ``lstsq``."""
    no_summaries = "norm(x) -> float", "Args:\n    x: the input.", "It is defined as::", "- one thing and many others."
    texts = [norm, *(f"{summary}\n\n    {REST}" for summary in no_summaries)]
    functions = [f'def norm_{at}(x):\n    """{text}"""' for at, text in enumerate(texts)]
    (tmp_path / "norms.py").write_text("\n\n\n".join(functions))
    monkeypatch.syspath_prepend(str(tmp_path))
    (only,) = read_pydocs(["norms"])
    assert only.summary == "Return the n-th norm of numpy.ndarray x, i.e. its length."
    assert only.text == f"{REST} Examples Notes See lstsq."
