"""Checks a timeline of `k3 trace` or `k3 run --trace`: the rules of Chrome's trace event format, and
how much of each token's time the spans explain.

Alone: `timeline.py FILE...` prints what it found and fails when a rule is broken."""

import json
import pathlib
import sys

# They last as long as a token or longer: what they contain is what explains it.
WHOLE = {"token", "pass"}


def load(path):
    """The events by kind: {"X": [...], "M": [...]}, after checking the rules of the format."""
    timeline = json.loads(pathlib.Path(path).read_text())
    events = {"X": [], "M": []}
    for event in timeline["traceEvents"]:
        assert event["ph"] in events, event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        assert isinstance(event["name"], str) and event["name"], event
        events[event["ph"]].append(event)
    for event in events["X"]:
        assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0, event
        assert isinstance(event["dur"], (int, float)) and event["dur"] >= 0, event
    for event in events["M"]:
        assert event["name"] in ("process_name", "thread_name"), event
        assert event["args"]["name"], event
    check_names(events)
    check_nesting(events["X"])
    assert timeline["otherData"]["dropped"] >= 0
    return events


def check_names(events):
    """Every event's process and thread have one name each."""
    processes = [e["pid"] for e in events["M"] if e["name"] == "process_name"]
    threads = [(e["pid"], e["tid"]) for e in events["M"] if e["name"] == "thread_name"]
    assert len(processes) == len(set(processes)) and len(threads) == len(set(threads))
    for event in events["X"]:
        assert event["pid"] in processes and (event["pid"], event["tid"]) in threads, event


def nanoseconds(event):
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def check_nesting(events):
    """Complete events of one thread contain one another or lie apart; they never cross."""
    threads = {}
    for event in events:
        threads.setdefault((event["pid"], event["tid"]), []).append((*nanoseconds(event), event["name"]))
    for spans in threads.values():
        open_ends = []
        for begin, end, name in sorted(spans, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], f"{name} at {begin} ns crosses the end of its parent"
            open_ends.append(end)


def process_of(events, name):
    """The pids of the processes called `name`."""
    return {e["pid"] for e in events["M"] if e["name"] == "process_name" and e["args"]["name"] == name}


def names_in(events, process):
    pids = process_of(events, process)
    return {e["name"] for e in events["X"] if e["pid"] in pids}


def covered(spans, begin, end):
    """The nanoseconds from `begin` to `end` that lie in at least one of `spans`."""
    total, reached = 0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total


def token_coverage(events):
    """For each token of the compute worker, in order: the share of its wall time inside a span that
    says what was done."""
    pids = process_of(events, "k3-compute")
    own = [e for e in events["X"] if e["pid"] in pids]
    parts = [nanoseconds(e) for e in own if e["name"] not in WHOLE]
    shares = []
    for event in sorted((e for e in own if e["name"] == "token"), key=lambda e: e["ts"]):
        begin, end = nanoseconds(event)
        inside = [s for s in parts if s[1] > begin and s[0] < end]
        shares.append(covered(inside, begin, end) / max(end - begin, 1))
    return shares


def main():
    for path in sys.argv[1:]:
        events = load(path)
        shares = token_coverage(events)
        assert shares, f"{path}: no token"
        print(f"{path}: {len(events['X'])} spans, {len(shares)} tokens, "
              f"{min(shares):.2%} of a token explained at least")


if __name__ == "__main__":
    main()
