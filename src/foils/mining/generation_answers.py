"""How a model's answer is read: the texts in it, and which of them may be negatives."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from foils.data.tokens import alphanumeric
from foils.llm.answers import outer_values, without_thoughts

_THOUGHTS = re.compile("reason|thought|think|expla|rational|analy", re.IGNORECASE)


def parse(content: str) -> list[str]:
    """Read the negatives out of an answer, however it is wrapped; [] where there is none.

    Accepted: the JSON asked for; a list, or one text each, under keys that name negatives ("hard_negatives";
    "hard_negative_document_1", "hard_negative_document_2" and so on, as in ECI's prompt); where no key does, the first
    list that is not under a key that names thoughts ("reasoning"); objects with one text each in the place of texts;
    JSON inside a fence or among words, or after a model's thoughts; JSON that is cut off, up to its last whole string;
    numbered or dashed lines.
    """
    answer = without_thoughts(content).strip()
    values = list(outer_values(answer))
    called = [texts for value in values if (texts := _called_negatives(value)) is not None]
    for texts in called or map(_first_list, values):
        if texts:
            return texts
    lines = (re.match(r"\s*(?:\d+[.)]|[-*•])\s+(.*\S)", line) for line in answer.splitlines())
    return [line.group(1) for line in lines if line]


def _called_negatives(value: Any) -> list[str] | None:
    """Texts under keys that name negatives, at any depth; None without such a key."""
    listed: list[str | None] = []
    called = False
    for part in _parts(value):
        for key, inner in part.items() if isinstance(part, dict) else ():
            if _names_negatives(key):
                called = True
                single = [] if key.lower().endswith("s") else [inner]  # "negatives": "none" is no text
                listed += map(_text, inner if isinstance(inner, list) else single)
    return [text for text in listed if text is not None] if called else None


def _first_list(value: Any) -> list[str]:
    """Texts of the first list that holds any, outer lists before inner ones."""
    for part in _parts(value):
        texts = [text for item in part if (text := _text(item)) is not None] if isinstance(part, list) else []
        if texts:
            return texts
    return []


def _parts(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all that is inside it, in its order, less what is under keys for thoughts or negatives."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            waiting += reversed([part[key] for key in part if not (_THOUGHTS.search(key) or _names_negatives(key))])
        elif isinstance(part, list):
            waiting += reversed(part)


def _text(item: Any) -> str | None:
    """A text, or an object's first one, that of a negative before others; None without one."""
    if isinstance(item, dict):
        texts = {key: text for key, text in item.items() if isinstance(text, str) and not _THOUGHTS.search(key)}
        item = next((texts[key] for key in (*filter(_names_negatives, texts), *texts)), None)
    return item.strip() if isinstance(item, str) else None


def _names_negatives(key: str) -> bool:
    return "negative" in key.lower() and not _THOUGHTS.search(key)


def validated(
    texts: Sequence[str],
    *,
    query: str,
    positives: Sequence[str],
    taken: Sequence[str],
    number: int,
    prompt: str = "",
    shortest: float = 0.0,
) -> tuple[list[str], Counter[str]]:
    """Return the first `number` usable texts, and how many were turned away, by reason.

    All comparisons are of folded letters and digits (`alphanumeric`). The reasons, of which the first that holds
    counts: a text is empty or not valid Unicode; equals the query, a positive or another; is a part of a positive; is a
    part of the query, or of the prompt, of two words or more; is in another script than the positives; has fewer words
    than a share of the shortest positive; is one more than was asked for.

    Args:
        texts: of an answer.
        query: of the record.
        positives: all of the query's.
        taken: negatives that the record has already.
        number: wanted.
        prompt: what the prompt says beside the record.
        shortest: the share of the shortest positive's words that a text has at least.
    """
    seen = {_key(text): "repeats another" for text in taken}
    of_positives = [_key(text) for text in positives]
    seen.update(dict.fromkeys(of_positives, "equals a positive") | {_key(query): "equals the query"})
    script, least = _script(" ".join(positives)), shortest * min(map(len, of_positives), default=0)
    whole = [_spaced(words) for words in of_positives]
    spaced_query, spaced_prompt = _spaced(_key(query)), _spaced(_key(prompt))
    kept: list[str] = []
    away: Counter[str] = Counter()
    for text in texts:
        words = _key(text)
        if not words or not _encodes(text):
            away["empty, or not valid text"] += 1
        elif words in seen:
            away[seen[words]] += 1
        elif any(_spaced(words) in positive for positive in whole):
            away["is a part of a positive"] += 1
        elif len(words) > 1 and _spaced(words) in spaced_query:
            away["is a part of the query"] += 1
        elif len(words) > 1 and _spaced(words) in spaced_prompt:
            away["repeats the prompt"] += 1
        elif script and _script(text) not in (script, None):
            away["in another script"] += 1
        elif len(words) < least:
            away["much shorter than a positive"] += 1
        elif len(kept) == number:
            away["more than asked for"] += 1
        else:
            kept.append(text)
            seen[words] = "repeats another"
    return kept, away


def _key(text: str) -> tuple[str, ...]:
    return tuple(alphanumeric(text))


def _spaced(words: tuple[str, ...]) -> str:
    return f" {' '.join(words)} "


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _script(text: str) -> str | None:
    """The script of most letters, by the first word of their Unicode names; None without letters."""
    names = Counter(unicodedata.name(letter, "?").partition(" ")[0] for letter in text if letter.isalpha())
    return names.most_common(1)[0][0] if names else None
