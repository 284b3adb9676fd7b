"""The names that foils itself gives."""

import pytest

import foils


def test_every_public_name_is_there_and_is_what_its_home_has():
    for name in foils.__all__:
        assert getattr(foils, name).__name__ == name
        assert name in dir(foils)


def test_another_name_is_not():
    with pytest.raises(AttributeError, match="mines"):
        foils.mines  # noqa: B018
