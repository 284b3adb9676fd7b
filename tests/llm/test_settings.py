"""Options of doors that ask a language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from foils.data import Collection
from foils.llm import Client, LLMSettings, Usage
from foils.llm.settings import parsed_price
from foils.runtime.errors import InputError


def test_settings_make_the_client() -> None:
    settings = LLMSettings(llm_model="m", base_url="http://h/v1", concurrency=2, timeout=3.0, retries=4, schema=False)
    expected = Client("m", "http://h/v1", concurrency=2, timeout=3.0, retries=4, structured=False)
    assert settings.client() == expected
    assert LLMSettings(llm_model=expected).client() is expected
    with pytest.raises(InputError, match="no model"):
        LLMSettings().client()


def test_where_answers_are_kept(small: Collection, tmp_path: Path) -> None:
    assert LLMSettings(log=tmp_path).folder(small) == tmp_path
    assert small.digest[:16] in LLMSettings().folder(small).parts


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"llm_temperature": -1}, {"price": (1.0, -1.0)}, {"retries": -1}])
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="expected"):
        LLMSettings(llm_model="m", **wrong)


def test_prices() -> None:
    assert parsed_price("0.15,0.60") == (0.15, 0.6)
    for bad in ("cheap", "1", "1,2,3"):
        with pytest.raises(InputError, match="two numbers"):
            parsed_price(bad)
    usage = Usage(3, 2_000_000, 1_000_000)
    assert usage.rows((1.0, 2.0))[-1] == ("cost", "4.00")
    assert len(usage.rows()) == 3
    assert usage.to_json()["cost"] is None
    assert usage.to_json((1.0, 2.0)) == {"requests": 3, "tokens": [2_000_000, 1_000_000], "cost": 4.0}
