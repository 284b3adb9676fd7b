"""Settings that the program takes as keys of one option, and Python as keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.keyed import KeyedSetting, options_of, parsed_keys
from foils.runtime.options import Option, Settings, settings_of, several, spelling


def numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


@dataclass(frozen=True)
class EncoderSettings(Settings):
    """An encoder.

    Attributes:
        model: Its name.
        batch: Texts at once. More is faster.
        prompt: Text put before each query.
        scale: A factor.
        backend: What runs it.
        code: Run code of the model.
        shares: Three numbers.
        folder: Where vectors are kept.
    """

    heading = "Encoder"

    model: str = "m"
    batch: Annotated[int, Option(least=1, within="encoder_args")] = 16
    prompt: Annotated[str | None, Option(within="encoder_args")] = None
    scale: Annotated[float, Option(flag="factor", within="encoder_args")] = 1.0
    backend: Annotated[str, Option(names=("torch", "onnx"), within="encoder_args")] = "torch"
    code: Annotated[bool, Option(within="encoder_args")] = False
    shares: Annotated[Sequence[float] | None, Option(parse=numbers, within="encoder_args")] = None
    folder: Annotated[Path | None, Option(within="encoder_args")] = None


KEYS = [each for each in settings_of(EncoderSettings) if each.option.within]


def test_settings_within_an_option_become_one():
    model, keyed = options_of(settings_of(EncoderSettings))
    assert (model.name, keyed.name, keyed.flag, keyed.heading) == ("model", "encoder_args", "--encoder-args", "Encoder")
    assert isinstance(keyed, KeyedSetting)
    assert [each.name for each in keyed.keys] == [each.name for each in KEYS]
    for line in (
        "batch=16: Texts at once. [at least 1]", "prompt=…: Text put before each query.", "factor=1.0: A factor.",
        "backend=torch: What runs it. [torch, onnx]", "code=false: Run code of the model.",
    ):  # fmt: skip
        assert line in keyed.help.splitlines()


def test_values_are_read_by_the_type_of_their_keys():
    text = "batch=3,prompt=Find this, please: ,factor=2,code=true,shares=0.5,0.5,folder=a/b,backend=onnx"
    assert parsed_keys([text, "batch=4"], keys=KEYS) == {
        "batch": 4, "prompt": "Find this, please: ", "scale": 2.0, "code": True, "shares": (0.5, 0.5),
        "folder": Path("a/b"), "backend": "onnx",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "error", "message"), [
    ("batch", InputError, r"^--encoder-args batch: expected KEY=VALUE, with one of the keys batch, prompt, factor,"),
    ("bacth=3", UnknownNameError, r"^unknown key of --encoder-args 'bacth'; .* Did you mean 'batch'\?$"),
    ("batch=many", InputError, r"^--encoder-args batch=many: expected a whole number$"),
    ("code=perhaps", InputError, r"^--encoder-args code=perhaps: expected true or false$"),
    ("batch=0", InputError, r"^--encoder-args batch=0; expected at least 1$"),
    ("backend=tf", UnknownNameError, r"^unknown --encoder-args backend 'tf'; expected one of: onnx, torch\."),
])  # fmt: skip
def test_a_key_or_value_that_does_not_fit_is_refused(text, error, message):
    with spelling({each.name: each.flag for each in KEYS}), pytest.raises(error, match=message):
        EncoderSettings(**parsed_keys([text], keys=KEYS))


def test_one_value_and_several():
    given = ["a"]
    assert several(given) == given
    assert several(given) is not given, "what is done to the list is not done to what was given"
    assert [several(each) for each in ("a.tsv", 0.5, ("a", "b"), [])] == [["a.tsv"], [0.5], ["a", "b"], []]
