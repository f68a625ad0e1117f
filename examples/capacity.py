"""Replicas that a load needs, and how an autoscaler follows it; docs/deploying/scale.md explains the figures.

python examples/capacity.py 1000 10000 100000
python examples/capacity.py 1000 10000 --simulate
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

UTILISATION = 0.6
"""Part of a core that calls may take; the rest is for bursts, and for the calls of a replica that has ended."""
ROLLING_SPARES = 1
"""Replicas that may be missing at any time."""
SYNC_SECONDS = 0.01
"""Minimum time between two synchronisations of a replica's rates with Redis."""

CHECK_SECONDS = 15
"""Interval of the HorizontalPodAutoscaler."""
START_SECONDS = 20
"""From the decision until a new replica gets calls."""
CALM_SECONDS = 300
"""Time for which the autoscaler waits before it removes replicas."""
TOLERANCE = 0.1
"""Deviation from the target that the autoscaler ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An average call."""

    cpu_seconds: float
    """Processor time."""
    wait_seconds: float
    """Time for which it waits for others."""

    @property
    def rate(self) -> float:
        """Calls a second that one replica of one process serves."""
        return UTILISATION / self.cpu_seconds

    @property
    def target(self) -> int:
        """Calls in flight of a replica at this rate (Little's law): the autoscaler's target."""
        seconds = self.wait_seconds + self.cpu_seconds / (1 - UTILISATION)
        return max(1, round(self.rate * seconds))

    def replicas(self, calls_a_second: float) -> int:
        """Return the number of replicas for a load."""
        return math.ceil(calls_a_second / self.rate) + ROLLING_SPARES


def plan(call: Call, loads: list[int]) -> None:
    """Print the replicas for each load, and what they do at Redis."""
    print(f"a replica serves {call.rate:,.0f} calls a second, with {call.target} calls in flight")
    print(f"{'calls/s':>8}  replicas  in flight  rate synchronisations/s at most")
    for load in loads:
        replicas = call.replicas(load)
        print(f"{load:8,}  {replicas:8,}  {load * call.target / call.rate:9,.0f}  {replicas / SYNC_SECONDS:9,.0f}")


def simulate(call: Call, low: int, high: int) -> None:
    """Print what happens when a load rises from one value to another within a minute."""
    ready, starting = call.replicas(low), list[tuple[int, int]]()
    queue, longest, calm_since = 0.0, 0.0, 0
    print(f"from {low:,} to {high:,} calls/s within a minute")
    print("seconds  calls/s  replicas  in flight each  longest delay so far")
    for second in range(10 * 60 + 1):
        load = low + (high - low) * min(1.0, second / 60)
        ready += sum(count for due, count in starting if due == second)
        queue += load
        served = min(queue, ready / call.cpu_seconds)
        queue -= served
        longest = max(longest, queue / (ready / call.cpu_seconds))
        used = min(0.99, served * call.cpu_seconds / ready)
        in_flight = (served * (call.wait_seconds + call.cpu_seconds / (1 - used)) + queue) / ready
        if second % CHECK_SECONDS == 0:
            wanted = ready * in_flight / call.target
            coming = sum(count for due, count in starting if due > second)
            if wanted > ready * (1 + TOLERANCE):
                calm_since = second
                # It at most doubles the replicas in each interval, and counts those that start.
                more = min(math.ceil(wanted), 2 * (ready + coming)) - ready - coming
                if more > 0:
                    starting.append((second + START_SECONDS, more))
            elif second - calm_since > CALM_SECONDS and wanted < ready * (1 - TOLERANCE):
                ready = max(math.ceil(wanted), call.replicas(load))
        if second % 60 == 0:
            print(f"{second:7}  {load:7,.0f}  {ready:8,}  {in_flight:14,.1f}  {longest:17.2f} s")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", type=int, nargs="*", default=[1000, 10_000, 100_000], help="calls a second")
    parser.add_argument("--cpu-ms", type=float, default=0.3, help="processor time of a call (default: %(default)s)")
    parser.add_argument("--wait-ms", type=float, default=20, help="time a call waits for others (default: %(default)s)")
    parser.add_argument("--simulate", action="store_true", help="let the load rise from the first to the last")
    options = parser.parse_args()
    call = Call(cpu_seconds=options.cpu_ms / 1000, wait_seconds=options.wait_ms / 1000)
    if options.simulate:
        simulate(call, options.loads[0], options.loads[-1])
    else:
        plan(call, options.loads)


if __name__ == "__main__":
    main()
