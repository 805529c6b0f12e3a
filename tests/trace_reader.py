#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Reads a trace of `scx_magpie record` with Perfetto's own definition of the format (the protobufs of PyPI's `perfetto`).

    tests/trace_reader.py FILE    what it says, as JSON

It is no trace processor: that one comes from a server, not from a package. It takes the file as the trace processor does:
all fields must be known, names interned before they are used, columns of equal length, times of a CPU in order.
"""
import gzip
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scx_magpie"
sys.path.insert(0, str(CACHE / "tools" / "python"))  # where tools/setup puts it

from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: E402
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Protobuf  # noqa: E402
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent  # noqa: E402


def check_known(message):
    """Each field is one that Perfetto knows, of the type that it expects: a wrong type is an unknown field."""
    unknown = [(field.field_number, field.wire_type) for field in UnknownFieldSet(message)]
    assert not unknown, f"unknown fields of {message.DESCRIPTOR.name}: {unknown}"
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for child in [value] if hasattr(value, "ListFields") else value:
                check_known(child)


def summed(deltas):
    time, times = 0, []
    for delta in deltas:
        time += delta
        times.append(time)
    return times


class Trace:
    def __init__(self, path):
        data = path.read_bytes()
        trace = Protobuf.FromString(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        check_known(trace)
        self.switches = defaultdict(list)  # by CPU: (time, state of the previous task, pid)
        self.wakings = []  # (time, CPU of the waker, pid, CPU)
        self.new = []  # the same of new tasks
        self.lost = []  # CPUs
        self.comms, self.tgids, self.processes = {}, {}, {}
        self.tracks = {}  # by number: ("CPU", id) or ("task", pid)
        self.track_names = {}
        self.events = []  # {"track", "name", "at", "duration" if it has one, and its values}
        self.release = None
        names, values, is_cleared, open_slices = {}, {}, False, defaultdict(list)
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id
            if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                names, values, is_cleared = {}, {}, True
            names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
            values |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
            if packet.HasField("system_info"):
                self.release = packet.system_info.utsname.release
            elif packet.HasField("track_descriptor"):
                self.describe(packet.track_descriptor)
            elif packet.HasField("ftrace_events"):
                self.take_bundle(packet.ftrace_events)
            elif packet.HasField("process_tree"):
                for thread in packet.process_tree.threads:
                    self.tgids[thread.tid], self.comms[thread.tid] = thread.tgid, thread.name
                for process in packet.process_tree.processes:
                    self.processes[process.pid] = process.cmdline[0]
            else:
                assert packet.HasField("track_event") and is_cleared and packet.timestamp, packet
                self.take_event(packet.timestamp, packet.track_event, names, values, open_slices)

    def describe(self, track):
        assert track.uuid not in self.tracks
        if track.HasField("thread"):
            self.tracks[track.uuid] = "task", track.thread.tid
        else:
            assert not track.parent_uuid or track.parent_uuid in self.tracks
            self.tracks[track.uuid] = "CPU", track.sibling_order_rank
        self.track_names[track.uuid] = track.name

    def take_bundle(self, bundle):
        cpu, compact = bundle.cpu, bundle.compact_sched
        if bundle.lost_events:
            self.lost.append(cpu)
        columns = [compact.switch_prev_state, compact.switch_next_pid, compact.switch_next_prio, compact.switch_next_comm_index]
        times = summed(compact.switch_timestamp)
        assert {len(column) for column in columns} == {len(times)}
        for time, state, pid, _, comm in zip(times, *columns):
            assert not self.switches[cpu] or time >= self.switches[cpu][-1][0], f"CPU {cpu}: a switch before the last one"
            self.switches[cpu].append((time, state, pid))
            assert compact.intern_table[comm] is not None
        columns = [compact.waking_pid, compact.waking_target_cpu, compact.waking_prio, compact.waking_comm_index,
                   compact.waking_common_flags]
        times = summed(compact.waking_timestamp)
        assert {len(column) for column in columns} == {len(times)}
        self.wakings += [(time, cpu, pid, target) for time, pid, target, *_ in zip(times, *columns)]
        for event in bundle.event:
            new = event.sched_wakeup_new
            assert event.HasField("sched_wakeup_new") and new.pid
            self.new.append((event.timestamp, cpu, new.pid, new.target_cpu))

    def take_event(self, at, event, names, values, open_slices):
        kind = event.type
        if kind == TrackEvent.TYPE_SLICE_END:
            begun = open_slices[event.track_uuid].pop()
            begun["duration"] = at - begun["at"]
            return
        where, number = self.tracks[event.track_uuid]
        found = {"at": at, "track": where, "of": number, "name": names[event.name_iid]}
        for annotation in event.debug_annotations:
            field = annotation.WhichOneof("value")
            found[values[annotation.name_iid]] = getattr(annotation, field)
        self.events.append(found)
        if kind == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append(found)
        else:
            assert kind == TrackEvent.TYPE_INSTANT

    def runs(self):
        """Times that tasks ran: (pid, CPU, from, to, state after it)."""
        for cpu, switches in self.switches.items():
            for (start, _, pid), (end, state, _) in zip(switches, switches[1:]):
                yield pid, cpu, start, end, state

    def pids(self, comm):
        return {pid for pid, name in self.comms.items() if name == comm}

    def named(self, name):
        return [event for event in self.events if event["name"] == name]

    def span(self):
        times = [time for switches in self.switches.values() for time, *_ in switches]
        return min(times), max(times)


def main():
    trace = Trace(Path(sys.argv[1]))
    print(json.dumps({
        "release": trace.release, "switches": trace.switches, "wakings": trace.wakings, "new": trace.new, "lost": trace.lost,
        "comms": trace.comms, "tgids": trace.tgids, "processes": trace.processes, "events": trace.events,
        "tracks": list(trace.track_names.values())}, sort_keys=True))


if __name__ == "__main__":
    main()
