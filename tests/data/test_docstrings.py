"""Docstrings in the styles that packages use, worked by hand."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data.pydocs import plain, split_docstring

NUMPY = """
Return the `n`-th norm of :class:`~numpy.ndarray` x, i.e. its length.
It is never negative.

.. versionadded:: 1.8

Parameters
----------
x : array_like
    Input array.  If `axis` is None,
    `x` must be 1-D [1]_.
axis : {None, int}, *optional*
    The axis.

Examples
--------
>>> norm([3, 4])
5.0

.. code-block:: python

    norm(x)

Notes
-----
* See ``lstsq``.
* It is::

    sqrt(x @ x)
%(shared_notes)s

References
----------
.. [1] Golub and Van Loan
"""


def test_numpy_style() -> None:
    split = split_docstring(inspect.cleandoc(NUMPY))
    assert split is not None
    summary, rest = split
    assert summary == "Return the n-th norm of ndarray x, i.e. its length."
    assert rest == (
        "It is never negative. Parameters x : array_like Input array. If axis is None, x must be 1-D. "
        "axis : {None, int}, optional The axis. Notes * See lstsq. * It is: sqrt(x @ x) References "
        "[1] Golub and Van Loan"
    )


@pytest.mark.parametrize(
    "docstring",
    [
        "   ",
        "norm(x, axis=None) -> float\n\nThe norm.",
        "Args:\n    x: the input.",
        "The function is defined as::\n\n    f(x) = 1",
    ],
)
def test_what_is_no_sentence_gives_no_summary(docstring: str) -> None:
    assert split_docstring(docstring) is None


@pytest.mark.parametrize(
    ("paragraph", "summary"),
    [
        ("Sort by value (cf. Knuth) or key. Ties keep.", "Sort by value (cf. Knuth) or key."),
        ("Named for R. W. Hamming. It tapers.", "Named for R. W. Hamming."),
        ("Sort the rows\nin place", "Sort the rows in place"),
    ],
)
def test_the_summary_is_the_first_sentence(paragraph: str, summary: str) -> None:
    split = split_docstring(paragraph + "\n\nMore.")
    assert split is not None
    assert split[0] == summary
    left = " ".join(paragraph.split())[len(summary) :].strip()
    assert split[1] == f"{left} More.".strip()


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        (":func:`~torch.nn.functional.relu` is", "relu is"),
        (":py:meth:`sum() <numpy.sum>` is", "sum() is"),
        ("[`~Hub.path`] or [the site](https://example.org)", "Hub.path or the site"),
        ("`the page <https://example.org>`_ is", "the page is"),
        ("**bold** and *thin*", "bold and thin"),
        ("a * b * c and 2**3 and *args, **kwargs", "a * b * c and 2**3 and *args, **kwargs"),
        ("as in [1]_ [#note]_, yes", "as in, yes"),
        ("``code`` here::", "code here:"),
    ],
)
def test_inline_markup(marked: str, text: str) -> None:
    assert plain(marked) == text


@given(st.text(alphabet=st.sampled_from("ab .:\n`*>-=[]()_~%#!?A1"), max_size=120))
def test_any_text_gives_a_clean_summary_or_none(docstring: str) -> None:
    split = split_docstring(docstring)
    if split is not None:
        summary, rest = split
        assert summary == " ".join(summary.split())
        assert summary[0].isalnum()
        assert not summary.endswith(":")
        assert rest == " ".join(rest.split())
