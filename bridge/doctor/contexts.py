"""Contexts in which a phrase of an attack is harmless: negations, warnings about foreign texts, and placeholders.

Only the words beside a phrase count. An attacker can build such a context; then it weakens the phrase, too.
"""

from __future__ import annotations

import re

_BEFORE_CHARS = 60
_AFTER_CHARS = 160
_NEGATED = re.compile(
    r"(?:(?<!why )\b(?:not|never|cannot|without|nor|avoid|prevents?|refuses? to|instead of|rather than|unable to)"
    r"|n['\u2019]t)(?: (?:ever|actually|really|simply|just|blindly|also|automatically|accidentally))? $"
)
_NEGATIVE_END = re.compile(r"(?:\b(?:not|never|cannot|without|nor)|n['\u2019]t) $")
_NOTHING = re.compile(
    r"\b(?:nothing|none|no (?:[\w'\u2019-]+ ){1,2})(?: ?(?:is|are|was|were|gets?|(?:will|would) be)) $"
)
_PURPOSE = re.compile(r"\b(?:to|before|until|unless|would|if you) $")
_EMPHASIZED = re.compile(r"(?:actually|really) ")
_OF_FOREIGN_TEXT = re.compile(
    r"(?: that| which)?(?: is| are| were| might be| may be)?"
    r" (?:found|contained|embedded|included|hidden|present|appearing|appear|written|inside|within|in|from)"
    r"(?: (?:in|within|inside|by|on))? (?:[\w'\u2019/-]+ ){0,4}?"
    r"(?:results?|contents?|(?:web ?)?pages?|web ?sites?|documents?|files?|titles?|snippets?|responses?|outputs?|data"
    r"|e?-?mails?|comments?|issues?|tickets?|posts?|text)\b"
)
_IN_FOREIGN_TEXT = re.compile(r" (?:found|contained|embedded|included|hidden) (?:in|within|inside) (?:it|them)\b")
_FOREIGN = re.compile(r"\b(?:results?|contents?|pages?|documents?|files?|responses?|outputs?|data|e?-?mails?)\b")
_FOLLOWING = re.compile(r"(?:do not|don't|never) (?:follow|obey)|(?:ignore|disregard) (?:any|all)(?: of)?(?: the)? ")
_OLDER = re.compile(r"\b(?:previous|prior|above|earlier|preceding|system|your)\b")
_ASKED = re.compile(
    r" (?:for|to (?:provide|enter|supply|give|choose|specify|type)) (?!.{0,60}(?:permission|confirm|approv|consent))"
)
_LEARNS = re.compile(r" (?:know|see|notice|find|learn|suspect|realize|be aware)")
_SHOWN = re.compile(
    r"(?:show|reveal|disclos|say)\w* (?:[\w'\u2019-]+ ){0,3}?(?:ids?|uuids?|identifiers?|passwords?|credentials?"
    r"|api keys?|secrets?|raw (?:json|html|data|output|urls?))\b"
)
_REFUSAL = re.compile(r"(?:do not|don't|dont|never|must not|should not|without|avoid)\b")
_OPTION = re.compile(r"(?:^|[\s`'\"(\[])(?:-{1,2}[\w-]+[ =]|[\w-]+=)$|[\w}>]/$")
_TAG = re.compile(r"<([\w-]+)>")


def is_harmless(text: str, start: int, end: int) -> bool:
    """Return True if the words around a phrase make it harmless.

    Args:
        text: The text without disguise.
        start: Beginning of the phrase.
        end: Its end.
    """
    before, after, phrase = text[max(0, start - _BEFORE_CHARS) : start], text[end : end + _AFTER_CHARS], text[start:end]
    if negated := _NEGATED.search(before):  # "don't actually execute", "never bypass security"
        return _NEGATIVE_END.search(before, 0, negated.start()) is None  # "never refuse to bypass" is no negation
    if _EMPHASIZED.match(phrase) and (_PURPOSE.search(before) or _NOTHING.search(before)):  # "to actually delete"
        return True
    if _FOLLOWING.match(phrase) and not _OLDER.search(phrase):  # "do not follow instructions found in results"
        if _IN_FOREIGN_TEXT.match(after):  # "results are data: do not follow instructions embedded in them"
            return _FOREIGN.search(before) is not None
        return _OF_FOREIGN_TEXT.match(after) is not None
    if _REFUSAL.match(phrase):
        return _keeps_no_secret(phrase, after)
    placeholder = _TAG.fullmatch(phrase)  # "--secret <secret>"
    return placeholder is not None and _OPTION.search(before) is not None and f"</{placeholder[1]}" not in text


def _keeps_no_secret(phrase: str, after: str) -> bool:
    """Return True for "do not ask the user for an id", "do not let users wait", "never show passwords to the user"."""
    if re.search(r"\bask(?:ing)?\b", phrase):
        return _ASKED.match(after) is not None
    if re.search(r"\blet\b", phrase):
        return _LEARNS.match(after) is None
    return _SHOWN.search(phrase) is not None
