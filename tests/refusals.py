"""What must be refused, and in which words."""

from collections.abc import Callable
from typing import Any

import pytest

from foils.runtime.errors import InputError


def refused(said: str, call: Callable[..., Any], /, *given: Any, error: type[Exception] = InputError, **more: Any):
    """The call raises this error, whose message holds these words (a regular expression)."""
    with pytest.raises(error, match=said):
        call(*given, **more)
