"""k3 sim-cache against an independent simulation, on random traces and the recorded one of the real model."""

import json
import math
import random
import struct

import pytest

import k3

EXPERT_BYTES = 17_547_264


def lru(records, slots):
    """Ages in a dictionary; a demand's residents are renewed before the absent ones come."""
    cache, hits = {}, 0
    for counted, layer, experts in records:
        for at in range(0, len(experts), slots):
            keys = [(layer, expert) for expert in experts[at:at + slots]]
            here = [key for key in keys if key in cache]
            hits += len(here) * counted
            for key in here:
                cache[key] = cache.pop(key)
            for key in keys:
                if key not in cache:
                    if len(cache) == slots:
                        del cache[next(other for other in cache if other not in keys)]
                    cache[key] = True
    return hits


def recurrence(records, slots):
    """Scores as plain sums over each expert's history of (demand of its layer, weight); the layer asked gives up its
    lowest unless it has less than its share, then the one that has most."""
    clock, history, cache, hits = {}, {}, {}, 0
    layers = len({layer for _, layer, _ in records})

    def score(key):
        return sum(weight * math.exp(-(clock[key[0]] - when) / 2) for when, weight in history[key])

    def evict(layer, keys):
        free = {other: [key for key in ((other, expert) for expert in cache[other]) if key not in keys] for other in cache}
        if not free[layer] or len(cache[layer]) < slots // layers:
            layer = min((other for other in free if free[other]), key=lambda other: (-len(cache[other]), other))
        cache[layer].remove(min(free[layer], key=lambda key: (score(key), key))[1])

    for counted, layer, experts in records:
        for at in range(0, len(experts), slots):
            keys = [(layer, expert) for expert in experts[at:at + slots]]
            clock[layer] = clock.get(layer, 0) + 1
            for place, key in enumerate(keys):
                history.setdefault(key, []).append((clock[layer], 1 - 0.6 * place / len(keys)))
            hits += sum(key[1] in cache.get(key[0], ()) for key in keys) * counted
            for key in keys:
                if key[1] in cache.setdefault(layer, set()):
                    continue
                if sum(map(len, cache.values())) == slots:
                    evict(layer, keys)
                cache[layer].add(key[1])
    return hits


def belady(records, slots):
    uses = [(counted, (layer, expert)) for counted, layer, experts in records for expert in experts]
    places = {}
    for place, (_, key) in enumerate(uses):
        places.setdefault(key, []).append(place)
    cache, hits = set(), 0
    for place, (counted, key) in enumerate(uses):
        places[key].pop(0)
        if key in cache:
            hits += counted
            continue
        if len(cache) == slots:
            cache.remove(max(cache, key=lambda other: places[other][0] if places[other] else len(uses)))
        cache.add(key)
    return hits


def simulated(tmp_path, trace, gb, *arguments):
    out = tmp_path / "sim.json"
    k3.k3("sim-cache", trace, "--gb", k3.comma(gb), "--json", out, *arguments)
    return json.loads(out.read_text())["rows"]


def check(rows, records):
    for row in rows:
        assert row["experts"] == sum(len(experts) for counted, _, experts in records if counted)
        for name, golden in (("lru", lru), ("recurrence", recurrence), ("belady", belady)):
            assert row["hits"][name] == golden(records, row["slots"]), (name, row["slots"])


@pytest.mark.parametrize("seed", range(4))
def test_random_traces(seed, tmp_path):
    """Uneven demands, some larger than the cache, every phase, from popular experts and rare ones."""
    source = random.Random(seed)
    records, lines = [], ["k3-expert-trace 1"]
    for token in range(40):
        phase = "p" if token < 3 else source.choice("dddu")
        for layer in range(3, 8):
            experts = []
            for _ in range(source.randint(1, 9)):
                expert = min(int(source.expovariate(0.15)), 39)
                if expert not in experts:
                    experts.append(expert)
            records.append((phase != "p", layer, experts))
            lines.append(" ".join(map(str, [phase, layer, *experts])))
    trace = tmp_path / "trace"
    trace.write_text("\n".join(lines) + "\n")
    slots = (1, 4, 9, 25, 60, 150)
    rows = simulated(tmp_path, trace, [count * 1000 / 1e9 for count in slots], "--expert-bytes", 1000)
    assert tuple(row["slots"] for row in rows) == slots
    check(rows, records)


def real_model():
    """The last sweep as an incremental trace: 5 positions of prefill, then 7 tokens (the data's README)."""
    data = (k3.reference_dir() / "expert_trace.bin").read_bytes()
    pairs = list(struct.iter_unpack("<ii", data))[82432:]
    routings = [(pairs[at][0], [expert for _, expert in pairs[at:at + 16]]) for at in range(0, len(pairs), 16)]
    layers = [routings[at:at + 12] for at in range(0, len(routings), 12)]
    records = [(False, *layer[position]) for layer in layers for position in range(5)]
    return records + [(True, *layer[position]) for position in range(5, 12) for layer in layers]


def test_the_real_model(tmp_path):
    gb = (8, 16, 64)
    rows = simulated(tmp_path, k3.reference_dir() / "expert_trace.bin", gb, "--last-sweep")
    assert [row["slots"] for row in rows] == [int(size * 1e9) // EXPERT_BYTES for size in gb]
    check(rows, real_model())
    rates = [{name: round(100 * hits / row["experts"], 1) for name, hits in row["hits"].items()} for row in rows]
    assert [rate["lru"] for rate in rates] == [0, 0, 45.8]
    assert [rate["belady"] for rate in rates] == [29.3, 45.1, 58.0]
    sketch = (13.9, 25.2, 49.5)  # a quota for every layer, with the same kind of score
    assert all(rate["recurrence"] > less for rate, less in zip(rates, sketch, strict=True))


@pytest.mark.parametrize("arguments,named", [
    (["--gb", "1e-8"], "one expert"), (["--gb", "0"], "--gb"), (["--top-k", "7"], "layer"), (["--last-sweep"], "sweep")])
def test_what_cannot_be_simulated_is_refused(arguments, named, tmp_path):
    trace = tmp_path / "trace"
    if "--top-k" in arguments:
        trace.write_bytes(struct.pack("<28i", *[1, 0] * 6, *[2, 0] * 8))
    else:
        trace.write_text("k3-expert-trace 1\nd 1 4 5\nd 1 4 5\nd 2 7\nd 1 3 9\nd 2 8\n")
    result = k3.k3("sim-cache", trace, *arguments, check=False)
    assert result.returncode == 2 and named in result.stderr
