"""Ways to spoil a valid file: as bytes, as lines, as fields, as JSON, as a table, as an array."""

import gzip
import io
import json
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_formats import NEGATIVES, Format, parquet

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
TYPES = (
    pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.null(), pa.decimal128(30, 3), pa.list_(pa.int8()),
    pa.struct([("a", pa.int8())]), pa.dictionary(pa.int8(), pa.string()),
)  # fmt: skip


def spoiled(form: Format, data: bytes, rng: Random, *, most: int = 4) -> bytes:
    """Return the file with one to `most` things wrong in it, or (above 1) many, of the kinds that suit its form."""
    ways: list[Spoil] = [_bytes]
    if "parquet" in form.name:
        ways += [_table] * 3
    else:
        ways += [_tokens, _lines, _lines]
        if data.lstrip()[:1] == b"{":
            ways += [_json] * 4
        elif form.lines:
            ways += [_fields] * 3
    if data[:2] == b"\x1f\x8b" and rng.random() < 0.8:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, ValueError, zlib.error):
            return _bytes(data, rng)
        return gzip.compress(spoiled(form, data, rng, most=most), 1, mtime=0)
    if most > 1 and form.lines and rng.random() < 0.5:  # a longer file: most of its lines are spoiled, each in its way
        lines = data.split(b"\n")[:-1] or [data]
        drawn = [rng.choice(lines) for _ in range(rng.choice((16, 64, 256)))]
        return b"\n".join(rng.choice(ways)(line, rng) if rng.random() < 0.9 else line for line in drawn)
    for _ in range(rng.randint(1, most)):
        data = rng.choice(ways)(data, rng)
    return data


def _bytes(data: bytes, rng: Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        before, after = data[:at], data[at:]
        data = before + rng.choice((
            bytes([after[0] ^ 1 << rng.randrange(8)]) + after[1:] if after else b"",
            rng.randbytes(1) + after[1:],
            rng.randbytes(rng.choice((1, 2, 16))) + after,
            after[rng.choice((1, 4, 64)) :],
            b"" if rng.random() < 0.3 else after,
            rng.choice((b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", bytes(4))) + after[4:],
        ))  # fmt: skip
    return data


def _tokens(data: bytes, rng: Random) -> bytes:
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    return data[:at] + rng.choice(TOKENS) + data[at:]


def _lines(data: bytes, rng: Random) -> bytes:
    """One line twice, missing, elsewhere, cut, joined to another, or in the place of another."""
    lines = data.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    line, odd = lines[at], rng.choice((b"", b" \t", b"null", b"[]", b"\r", "\u2003".encode(), lines[at] + b"\r"))
    lines[at : at + 1] = rng.choice((
        [line, lines[other]], [], [lines[other]], [line[: rng.randrange(len(line) + 1)]], [line + lines[other]], [odd],
    ))  # fmt: skip
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
        at = rng.randrange(len(value))
        copies = rng.choice((0, 1, 1, 2))
        put = [_changed(value[at], rng)] if copies == 1 else [value[at]] * copies
        return [*value[:at], *put, *value[at + 1 :]]
    key, made = rng.choice(list(value)), dict(value)
    was, way = made.pop(key), rng.randrange(6)
    if way == 1:
        made[rng.choice((*value, *STRINGS, "negative_3", "negative_10", "query", "anchor"))] = was
    elif way:
        made[key] = _changed(was, rng)
    if way == 2:
        made[rng.choice(("negative", "title", "score", "x"))] = rng.choice(VALUES)
    return made


def _table(data: bytes, rng: Random) -> bytes:
    """A table with other columns, types or values; where the bytes are no table any more, a fresh one."""
    try:
        table = pq.ParquetFile(io.BytesIO(data)).read()
    except Exception:
        table = pa.table(NEGATIVES)
    name, provenance = rng.choice(table.column_names or ["x"]), b'{"stage": "mine"}'
    try:
        match rng.randrange(8):
            case 0:
                table = table.drop_columns([name])
            case 1:
                new = rng.choice((*table.column_names, "elo", "gap", "preference", ""))
                table = table.append_column(new, table[name])
            case 2:
                table = table.take(pa.array([rng.randrange(max(1, len(table))) for _ in range(rng.choice((0, 1, 5)))]))
            case 3:
                provenance = rng.choice((b"", b"[]", b"\xff", b'{"settings": 1}', b"[" * 9000, b"9" * 5000, b"null"))
            case 4:
                values = table[name].cast(rng.choice(TYPES), safe=False)
                table = table.set_column(table.column_names.index(name), name, values)
            case 5:
                nulls = pa.nulls(len(table), rng.choice(TYPES))
                table = table.set_column(table.column_names.index(name), name, nulls)
            case _:
                cells = [rng.choice(VALUES) if rng.random() < 0.5 else cell for cell in table[name].to_pylist()]
                alike = [cell if isinstance(cell, type(rng.choice(cells))) else None for cell in cells]
                table = table.set_column(table.column_names.index(name), name, pa.array(alike))
        return parquet(table, provenance)
    except (pa.ArrowException, ValueError, OverflowError, IndexError, KeyError, TypeError):
        return _bytes(data, rng)
