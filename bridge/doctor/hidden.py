"""Text without disguise: invisible characters, and letters that look like Latin ones."""

from __future__ import annotations

import re
import unicodedata

_EMOJI = re.compile(
    "\U0001f3f4[\U000e0061-\U000e007a]{5}\U000e007f"  # flags of England, Scotland and Wales
    "|(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"  # joins emoji and letters of some scripts
)
"""Invisible characters in ordinary use."""
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MARKS = re.compile("[\u200e\u200f\u061c]")
"""Direction marks that texts in right-to-left scripts contain."""
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e01ef]"
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TAG_BASE = 0xE0000
_TAGS = range(0xE0020, 0xE007F)

_LOOKALIKES = str.maketrans(
    "\u0430\u0441\u0501\u0435\u04bb\u0456\u0458\u04cf\u043e\u0440\u051b\u0455\u0443\u0445\u051d\u0475"
    "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u03bf\u03bd"
    "\u03b1\u03b9\u03c1\u0391\u0392\u0395\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0396",
    "acdehijlopqsyxwvABCEHIJKMOPSTXovaipABEHIKMNOPTYXZ",
)
"""Cyrillic and Greek letters, and the Latin letters that they look like."""
_SPACES = re.compile(r"\s+")
_EMPHASIS = re.compile(r"[*`]+")


def hidden_characters(text: str) -> list[str]:
    """Invisible characters, without those of emoji, and without direction marks in a right-to-left script."""
    if text.isascii():
        return []
    text = _EMOJI.sub("", text)
    if _RIGHT_TO_LEFT.search(text):
        text = _MARKS.sub("", text)
    return _HIDDEN.findall(text)


def control_characters(text: str) -> list[str]:
    """Control characters, without tabs and line ends."""
    return _CONTROLS.findall(text)


def spelled_by_tags(text: str) -> str:
    """ASCII text that tag characters of Unicode spell."""
    return "".join(chr(ord(char) - _TAG_BASE) for char in text if ord(char) in _TAGS)


def latin(text: str) -> str:
    """Replace letters that look like Latin ones."""
    return unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)


def undisguised(text: str) -> str:
    """Text for the search for phrases: without hidden characters, lookalikes, emphasis, capitals and line ends."""
    if not text.isascii():
        tags = spelled_by_tags(text)
        text = latin(_HIDDEN.sub("", text)) + (f" {tags}" if tags else "")
    return _SPACES.sub(" ", _EMPHASIS.sub("", text)).lower()


def character_name(char: str) -> str:
    """Code point and name of a character: ``U+200B ZERO WIDTH SPACE``."""
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".strip()
