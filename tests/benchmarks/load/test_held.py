from __future__ import annotations

from dataclasses import replace

from tests.benchmarks.load.held import Held
from tests.benchmarks.load.held_calls import Tally
from tests.benchmarks.load.memory import Usage
from tests.benchmarks.load.upkeep import Record, Sample

USAGE = Usage(resident_kib=2048, private_kib=1024, descriptors=20)
SECONDS = {"add": [0.001, 0.002], "wait": [0.02], "large": [0.003]}


def sample(at_seconds: float, *workers: int) -> Sample:
    return Sample(at_seconds=at_seconds, workers=dict.fromkeys(workers, USAGE))


def record(log: str = "") -> Record:
    return Record(
        samples=[sample(1, 11, 12), sample(2, 11, 13), sample(3, 21, 22), sample(4, 21, 23)],
        acts=[(1.0, "a worker ended"), (2.0, "the server rolled"), (3.0, "a worker ended")],
        ended_workers=2,
        returned_workers=2,
        rolls=1,
        steady=[11, 21],
        logs=["worker 2 ended (exit code 0); restarting it\n", log],
    )


HELD = Held(
    tallies=[Tally(seconds=SECONDS) for _ in range(4)],
    run_twice=[],
    record=record(),
    part_seconds=1,
)


def test_a_load_that_lost_nothing_fails_in_nothing() -> None:
    verdict = HELD.verdict()
    assert [line.split()[-2] for line in list(verdict.lines())[4:]] == ["16", "0", "0", "2", "1"]
    assert verdict.failures == []


def test_what_was_lost_is_told_and_fails() -> None:
    lost = replace(HELD, tallies=[*HELD.tallies[:3], Tally(seconds=SECONDS, lost={901: b"HTTP/1.1 503"})])
    assert lost.verdict().failures == ["call 901 was answered b'HTTP/1.1 503'"]


def test_what_ran_twice_is_told_and_fails() -> None:
    assert replace(HELD, run_twice=[7]).verdict().failures == ["calls ran twice: [7]"]


def test_what_did_not_come_back_and_what_a_server_complains_of_fails() -> None:
    strange = record("ERROR it hurts\n")
    strange.returned_workers = 1
    assert replace(HELD, record=strange).verdict().failures == [
        "not all that ended came back",
        "a server said: ERROR it hurts",
    ]


def test_the_worker_that_stayed_is_compared_with_itself() -> None:
    grown = replace(USAGE, private_kib=1034)
    samples = [*HELD.record.samples[:1], Sample(at_seconds=2, workers={11: grown, 13: USAGE}), *HELD.record.samples[2:]]
    first, second, both = list(replace(HELD, record=replace(HELD.record, samples=samples)).usage().lines())[4:]
    assert [line.split("|")[-2].strip() for line in (first, second, both)] == ["+10 KiB", "+0 KiB", "+0 KiB"]
    cells = [cell.strip() for cell in both.split("|")[1:-1]]
    assert cells == ["all", "4.0 MiB", "2.0 MiB", "40", "4.0 MiB", "2.0 MiB", "40", "+0 KiB"]
