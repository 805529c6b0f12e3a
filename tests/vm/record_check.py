#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Checks the traces of record.sh for what is known of its tasks: tests/vm/record_check.py FOLDER"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
try:
    from trace_reader import Trace
except ModuleNotFoundError as missing:
    print(f"  SKIPPED: the traces are not read: {missing} (tools/setup test fetches it)")
    sys.exit()

PREEMPTED = 0x100
MS = 1_000_000


def check(fact, what):
    if not fact:
        print(f"  FAILED: {what}")
        sys.exit(1)


def main():
    folder = Path(sys.argv[1])
    early = Trace(folder / "early.pftrace.gz")
    check(early.switches, "the recording that Ctrl-C ended is empty")
    other = Trace(folder / "other.pftrace.gz")
    reasons = {event["name"] for event in other.events} - {"steal", "stolen", "moved", "preemption"}
    check(other.switches and not reasons, f"reasons of scx_magpie under another scheduler: {reasons}")
    trace = Trace(folder / "trace.pftrace.gz")
    check(not trace.lost, f"lost events on CPUs {trace.lost}")
    start, end = trace.span()
    span = end - start
    check(1400 * MS <= span <= 2500 * MS, f"1.5 s were recorded as {span / MS:.0f} ms")
    runs = list(trace.runs())

    def ran(pids, cpus=range(64)):
        return sum(to - since for pid, cpu, since, to, _ in runs if pid in pids and cpu in cpus)

    # Two tasks share CPU 1, and are nowhere else.
    pinned = [trace.pids(f"pinned-{name}") for name in "ab"]
    check(all(len(pids) == 1 for pids in pinned), f"pinned tasks: {pinned}")
    parts = [ran(pids) / span for pids in pinned]
    print(f"  pinned tasks ran for {parts[0]:.2f} and {parts[1]:.2f} of the time")
    for part, pids in zip(parts, pinned):
        check(0.4 <= part <= 0.55, f"a pinned task ran for {part:.2f} of the time")
        check({cpu for pid, cpu, *_ in runs if pid in pids} == {1}, "a pinned task ran on another CPU")
        states = {state for pid, _, _, _, state in runs if pid in pids}
        check(states <= {0, PREEMPTED}, f"a pinned task slept: {states}")

    # cpu.max allows a fifth of a CPU: throttled for the rest, and it does not run meanwhile.
    limited = trace.pids("limited")
    slices = [event for event in trace.named("throttled by cpu.max") if event["of"] in limited]
    check(len(slices) >= 10, f"throttled {len(slices)} times")
    check(all(event["cgroup"] == "limited" for event in slices), f"cgroups: {slices}")
    throttled = sum(event.get("duration", end - event["at"]) for event in slices) / span
    print(f"  the limited task ran for {ran(limited) / span:.2f} of the time, and was throttled for {throttled:.2f}")
    check(0.15 <= ran(limited) / span <= 0.3, "not a fifth")
    check(0.55 <= throttled <= 0.85, "throttled for another part of the time")
    for event in slices:
        over = event["at"] + event.get("duration", 0)
        inside = [run for run in runs if run[0] in limited and run[2] < over and run[3] > event["at"]]
        check(not inside, f"it ran while it was throttled: {event}, {inside}")
    others = [event for event in trace.named("throttled by cpu.max") if event["of"] not in limited]
    check(not others, f"others were throttled: {others}")

    # The hogs of CPU 0 may also use CPU 3, which takes one.
    freed = trace.pids("freed")
    check(len(freed) == 3, f"freed tasks: {freed}")
    stolen = [event for event in trace.named("stolen") if event["of"] in freed]
    check(any(event["from_cpu"] == 0 and event["to_cpu"] == 3 for event in stolen), f"none stolen by CPU 3: {stolen}")
    steals = {(event["at"], event["of"]) for event in trace.named("steal")}
    check(all((event["at"], event["to_cpu"]) in steals for event in stolen), "a task was stolen, and no CPU has stolen")
    check(ran(freed, [3]) > 0.2 * span, "CPU 3 did not run them")
    for event in stolen:
        after = [run for run in runs if run[0] == event["of"] and run[2] >= event["at"]]
        check(not after or min(after, key=lambda run: run[2])[1] in {event["to_cpu"], *(e["to_cpu"] for e in stolen)},
              f"stolen, and it ran elsewhere: {event}")

    # A sleeper is placed 200 times a second; where it is placed on an idle CPU, it runs there next.
    sleepers = trace.pids("sleeper") | trace.pids("usleep")
    idle = [event for event in trace.events if event["name"].endswith("idle") or event["name"].endswith("idle CPU")]
    check(len(idle) >= 50, f"{len(idle)} wakeups on idle CPUs")
    right = 0
    for event in idle:
        after = [run for run in runs if run[0] == event["of"] and run[2] >= event["at"]]
        right += not after or min(after, key=lambda run: run[2])[1] == event["cpu"]
    print(f"  {right} of {len(idle)} tasks that were placed on an idle CPU ran there; {len(sleepers)} sleepers")
    check(right >= 0.95 * len(idle), "they ran elsewhere")
    names = {}
    for event in trace.events:
        names[event["name"]] = names.get(event["name"], 0) + 1
    print("  " + ", ".join(f"{name}: {nr}" for name, nr in sorted(names.items())))


if __name__ == "__main__":
    main()
