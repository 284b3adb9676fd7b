"""Columns of tables that others wrote, brought to the types that ours have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as kinds

from foils.runtime.errors import InputError


def with_types(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the table with its columns of these names in these types; other columns stay.

    Texts come from texts, dictionaries of texts or integers (never from 1.0: is it "1" or "1.0"?), numbers from
    numbers (ranks from whole ones), truth values from truth values. Nulls stay nulls.

    Raises:
        InputError: every column whose values another type cannot hold, and names that are there twice.
    """
    if repeated := [name for name, count in Counter(table.column_names).items() if count > 1]:
        raise InputError(f"column {', '.join(repeated)} is there more than once; a column has one name")
    wrong = []
    for at, field in enumerate(table.schema):
        expected = types.get(field.name, field.type)
        if field.type == expected:
            continue
        try:
            if not _holds(expected, field.type):
                raise pa.ArrowInvalid(f"{field.type} is no {expected}")
            table = table.set_column(at, field.name, table[at].cast(expected))
        except pa.ArrowException:
            wrong.append(f"column {field.name} is {field.type}, expected {expected}")
    if wrong:
        raise InputError("; ".join(wrong))
    return table


def _holds(expected: pa.DataType, given: pa.DataType) -> bool:
    """Tell whether values of the given type mean something as the expected one."""
    if kinds.is_dictionary(given):
        given = given.value_type
    if kinds.is_null(given):
        return True
    if kinds.is_string(expected) or kinds.is_large_string(expected):
        text = kinds.is_string(given) or kinds.is_large_string(given) or given == pa.string_view()
        return bool(text or kinds.is_integer(given))
    if kinds.is_boolean(expected):
        return bool(kinds.is_boolean(given))
    return bool(kinds.is_integer(given) or kinds.is_floating(given) or kinds.is_decimal(given))
