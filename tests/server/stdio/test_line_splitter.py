from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.server.stdio.server import KEPT_BYTES, LineSplitter, LongLine


def _long(line: bytes) -> LongLine:
    return LongLine(line[:KEPT_BYTES], line[-KEPT_BYTES:])


def _split(pieces: list[bytes], max_line_bytes: int) -> list[bytes | LongLine]:
    splitter = LineSplitter(max_line_bytes)
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.end()


@given(
    pieces=st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\x00", b"\n"))), max_line_bytes=st.integers(0, 8)
)
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes], max_line_bytes: int) -> None:
    *lines, rest = b"".join(pieces).split(b"\n")
    whole = [*lines, rest] if rest else lines
    assert _split(pieces, max_line_bytes) == [line if len(line) <= max_line_bytes else _long(line) for line in whole]


def test_a_line_of_the_longest_allowed_length_is_whole() -> None:
    assert _split([b"abc\n", b"ab", b"c\n", b"abcd\n", b"abc", b"d\n", b"abc"], 3) == [
        b"abc",
        b"abc",
        _long(b"abcd"),
        _long(b"abcd"),
        b"abc",
    ]


def test_after_the_end_the_splitter_begins_anew() -> None:
    splitter = LineSplitter(3)
    assert (splitter.feed(b"ab"), splitter.end(), splitter.feed(b"c\n")) == ([], [b"ab"], [b"c"])


@given(sizes=st.lists(st.integers(1, 3 * KEPT_BYTES), min_size=1), max_line_bytes=st.integers(0, 2 * KEPT_BYTES))
def test_of_a_line_over_the_limit_the_ends_are_kept(sizes: list[int], max_line_bytes: int) -> None:
    line = bytes(65 + i % 57 for i in range(sum(sizes)))
    pieces = [line[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    assert _split(pieces, max_line_bytes) == [line if len(line) <= max_line_bytes else _long(line)]
