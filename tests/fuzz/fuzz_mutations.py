"""Ways to spoil a valid file: as bytes, as lines, as JSON, as a table, as an array."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_formats import ANSWERS, NEGATIVES, Format, parquet, shard

Spoil = Callable[[bytes, Random], bytes]

STRINGS = (
    "", " ", "\t", "\n", "\r", "\x00", "\u2028", "\x85", "\xa0", "\u200b", "\u202e", "\ufeff", "e\u0301", "\ud800",
    "\udfff", "😀", "１", "١", "d1", "d2", "7", "07", " 7", "7 ", "7.0", "q1", "1", "q1\td1\t1", "nan", "inf", "-inf",
    "1_0", "0x1", "1e999", "true", "null", "../../etc/passwd", "<script>", "{}", "[]", '"', "\\", "x" * 5000,
    "A text of its own.",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 7.0, 7.5, 2**31, 2**63, 2**64, 10**400, float("nan"), float("inf"), -float("inf"),
    [], {}, [[]], [None], {"": {}}, *STRINGS,
)  # fmt: skip
TOKENS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00", b"\r", b"\r\n", b"\n", b"\n\n", b"\t", b" ", b"\xc2\x85",
    b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xf5", b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"1e999", b"9" * 5000,
    b"[" * 3000, b'{"a":' * 3000, b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"PAR1", b"\x1f\x8b",
    b"query-id\tcorpus-id\tscore\n",
)  # fmt: skip


def spoiled(form: Format, data: bytes, rng: Random, *, most: int = 4) -> bytes:
    """Return the file with one to `most` things wrong in it, or (above 1) many, of the kinds that suit its form."""
    ways: list[Spoil] = [_bytes]
    if "parquet" in form.name:
        ways += [_table, _table, _table]
    elif form.name == "vector-shard":
        ways += [_array]
    elif form.name != "faiss-index":
        ways += [_tokens, _lines, _lines]
        if data.lstrip()[:1] == b"{":
            ways += [_json, _json, _json, _json]
        elif form.lines:
            ways += [_fields, _fields, _fields]
    whole = data[:2] == b"\x1f\x8b"
    if whole and rng.random() < 0.8:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, ValueError, zlib.error):
            return _bytes(data, rng)
        return gzip.compress(spoiled(form, data, rng, most=most), 1, mtime=0)
    if most > 1 and form.lines and rng.random() < 0.5:
        return _many(data, ways, rng)
    for _ in range(rng.randint(1, most)):
        data = rng.choice(ways)(data, rng)
    return data


def _many(data: bytes, ways: list[Spoil], rng: Random) -> bytes:
    """A longer file, in which most lines are spoiled, each in its own way."""
    lines = data.split(b"\n")[:-1] or [data]
    found = []
    for _ in range(rng.choice((16, 64, 256))):
        line = rng.choice(lines)
        if rng.random() < 0.9:
            line = rng.choice(ways)(line, rng)
        found.append(line)
    return b"\n".join(found)


def _bytes(data: bytes, rng: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(6):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(found):
                found[at] = rng.randrange(256)
            case 2:
                found[at:at] = rng.randbytes(rng.choice((1, 2, 16)))
            case 3:
                del found[at : at + rng.choice((1, 4, 64))]
            case 4 if rng.random() < 0.3:
                del found[at:]
            case 5 if at + 4 <= len(found):
                found[at : at + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", bytes(4)))
    return bytes(found)


def _tokens(data: bytes, rng: Random) -> bytes:
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    return data[:at] + rng.choice(TOKENS) + data[at:]


def _lines(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        case 1:
            del lines[at]
        case 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        case 4:
            lines[at] += rng.choice(lines)
        case _:
            lines[at] = rng.choice((b"", b" \t", b"null", b"[]", b"\r", "\u2003".encode(), lines[at] + b"\r"))
    return b"\n".join(lines)


def _fields(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    between = b"\t" if b"\t" in lines[at] else b" "
    fields = lines[at].split(between)
    fields[rng.randrange(len(fields))] = str(rng.choice(VALUES)).encode("utf-8", "surrogatepass")
    lines[at] = between.join(fields)
    return b"\n".join(lines)


def _json(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return _lines(data, rng)
    lines[at] = json.dumps(_changed(value, rng), ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _changed(value: Any, rng: Random) -> Any:
    """The value with one thing in it replaced, dropped, repeated or renamed."""
    if rng.random() < 0.15 or not isinstance(value, (dict, list)) or not value:
        return [value] if rng.random() < 0.1 else rng.choice(VALUES)
    if isinstance(value, list):
        at, found = rng.randrange(len(value)), list(value)
        match rng.randrange(4):
            case 0:
                del found[at]
            case 1:
                found.append(found[at])
            case _:
                found[at] = _changed(found[at], rng)
        return found
    key, made = rng.choice(list(value)), dict(value)
    match rng.randrange(6):
        case 0:
            del made[key]
        case 1:
            made[rng.choice((*value, *STRINGS, "negative_3", "negative_10", "query", "anchor"))] = made.pop(key)
        case 2:
            made[rng.choice(("negative", "title", "score", "x"))] = rng.choice(VALUES)
        case _:
            made[key] = _changed(made[key], rng)
    return made


_TYPES = (
    pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.null(), pa.decimal128(30, 3), pa.list_(pa.int8()),
    pa.struct([("a", pa.int8())]), pa.dictionary(pa.int8(), pa.string()),
)  # fmt: skip
_CELLS = (
    None,
    "",
    "q1",
    "d1",
    "x\x00",
    "9" * 50,
    0,
    1,
    -1,
    2**31,
    2**62,
    0.5,
    1.5,
    float("nan"),
    float("inf"),
    True,
    b"\xff",
)


def _table(data: bytes, rng: Random) -> bytes:
    """A table with other columns, types or values; where the bytes are no table any more, a fresh one."""
    try:
        table = pq.ParquetFile(io.BytesIO(data)).read()
    except Exception:
        table = pa.table(rng.choice((NEGATIVES, ANSWERS)))
    name = rng.choice(table.column_names) if table.num_columns else "x"
    provenance = b'{"stage": "mine"}'
    try:
        match rng.randrange(8):
            case 0:
                table = table.drop_columns([name])
            case 1:
                table = table.append_column(
                    rng.choice((*table.column_names, "elo", "gap", "preference", "")), table[name]
                )
            case 2:
                table = table.take(pa.array([rng.randrange(max(1, len(table))) for _ in range(rng.choice((0, 1, 5)))]))
            case 3:
                at = table.column_names.index(name)
                table = table.set_column(at, name, table[name].cast(rng.choice(_TYPES), safe=False))
            case 4:
                at = table.column_names.index(name)
                table = table.set_column(at, name, pa.nulls(len(table), rng.choice(_TYPES)))
            case 5:
                provenance = rng.choice((b"", b"[]", b"\xff", b'{"settings": 1}', b"[" * 9000, b"9" * 5000, b"null"))
            case _:
                cells = [rng.choice(_CELLS) if rng.random() < 0.5 else cell for cell in table[name].to_pylist()]
                alike = [cell if isinstance(cell, type(rng.choice(cells))) else None for cell in cells]
                table = table.set_column(table.column_names.index(name), name, pa.array(alike))
        return parquet(table, provenance)
    except (pa.ArrowException, ValueError, OverflowError, IndexError, KeyError, TypeError):
        return _bytes(data, rng)


def _array(data: bytes, rng: Random) -> bytes:
    """An array of another type or shape, or the good one with a spoiled beginning."""
    match rng.randrange(4):
        case 0:
            kind = np.dtype([("key", "<u8", (2,)), ("vector", "<f4", (4,))])
            return shard(np.zeros(rng.choice(((0,), (), (1, 3), (2, 2, 2), (3,))), kind))
        case 1:
            return shard(np.zeros((3, 6), rng.choice(("f4", "f8", "c16", "S5", "U3", "M8[s]", "?", "V24"))))
        case 2:
            sink = io.BytesIO()
            np.savez(sink, a=np.zeros(3))
            return sink.getvalue()
        case _:
            text = rng.choice(
                (b"'descr': '<f4'", b"'shape': (-1,)", b"'shape': (9999999999999,)", b"((((", b"# \n", b"'''")
            )
            at = rng.randrange(10, min(100, max(11, len(data))))
            return data[:at] + text + data[at + len(text) :]
