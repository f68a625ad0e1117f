"""Words of texts and identifiers, and the stems by which a search compares them."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_PART = re.compile(r"[A-Z]{2,}(?=[A-Z][a-z])|[A-Z]{2,}(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]|\d+")
"""Part of an identifier: ``HTTP`` and ``Server`` of ``HTTPServer``, ``v`` and ``2`` of ``v2``."""
_MIN_STEM_CHARS = 3
_VOWELS = frozenset("aeiouy")

_STOP_WORDS = """
a about all also am an and any are as at be been but by can could did do does doing for from give had has have he her
here him his how i if in into is it its just let like me more most my need no not now of on one only or our please same
see she should so some such tell than that the their them then there these they this those through to too up us use used
using very want was we were what when where which while who whom why will with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that do not tell one tool from another."""


def words_of(text: str) -> list[str]:
    """Split texts and identifiers into lower-case words without accents: ``getUserName`` has three."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [part.lower() for part in _PART.findall(text)]


def stems_of(text: str) -> list[str]:
    """Return the stems of the words of a text, without stop words."""
    return [stem_of(word) for word in words_of(text) if word not in STOP_WORDS]


@lru_cache(maxsize=20_000)
def stem_of(word: str) -> str:
    """Remove English endings: ``booked`` and ``bookings`` become ``book``, ``queries`` becomes ``query``."""
    if len(word) <= _MIN_STEM_CHARS or not (word.isascii() and word.isalpha()):
        return word
    return _without_suffix(_without_participle(_singular(word)))


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > _MIN_STEM_CHARS + 1:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _without_participle(word: str) -> str:
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= _MIN_STEM_CHARS and not _VOWELS.isdisjoint(base):
            is_doubled = len(base) > _MIN_STEM_CHARS and base[-1] == base[-2] and base[-1] not in "lsz"
            return base[:-1] if is_doubled else base
    return word


def _without_suffix(word: str) -> str:
    for ending in ("ation", "ion", "ment", "er", "or", "ly", "e"):
        if word.endswith(ending) and len(word) - len(ending) > _MIN_STEM_CHARS:
            return word.removesuffix(ending)
    return word
