"""The promise: the same ids and the same logits at every budget, thread count, ISA, chunk and mode."""

import json
import pathlib
import re

import pytest

import awkward_checkpoints
import k3

PROMPT = [3, 7, 11, 5, 9, 60, 41, 8, 2, 77, 13, 21, 34, 55, 89, 44, 33, 22, 11, 66, 6, 28, 90, 91, 92, 17, 1, 0, 5, 5, 61,
          62, 63, 64]
GENERATE = 12
UNIT_MB = "0.05"


def supported_isas(work):
    """Names of the kernel tables this machine runs, from the refusal of an unknown one."""
    refusal = k3.k3("run", "--model", k3.DEMO, "--work", work, "--ids", "1", "--gen", 1, "--isa", "none", check=False)
    assert refusal.returncode == 2, refusal.stderr
    names = [name for name in ("reference", "avx2", "avx512", "neon") if re.search(rf"\b{name}\b", refusal.stderr)]
    assert "reference" in names, refusal.stderr
    return names


def variants(sizes, isas):
    """Every dimension of the promise, one changed at a time and some together."""
    unit, half, everything = sizes["largest_unit"] / 1e9, sizes["trunk"] / 2e9, sizes["trunk"] * 2 / 1e9
    layer, one = sizes["layer_demand"] / 1e9, sizes["expert"] / 1e9
    cases = {
        "all pinned, all cached": ["--trunk-gb", everything, "--cache-gb", 1],
        "half the trunk": ["--trunk-gb", half, "--cache-gb", 1],
        "one unit": ["--trunk-gb", unit, "--cache-gb", 1],
        "cache of one expert": ["--trunk-gb", unit, "--cache-gb", one],
        "whole prefix": ["--recompute"],
        "whole prefix, chunk 7, one unit": ["--recompute", "--chunk", 7, "--trunk-gb", unit, "--cache-gb", layer],
    }
    for policy in ("lru", "recurrence"):
        for name, gb in (("one expert", one), ("one layer's demand", layer), ("three", 3 * layer), ("everything", 1)):
            cases[f"{policy}, cache of {name}"] = ["--cache-gb", gb, "--cache-policy", policy]
    for threads in (1, 2):
        for chunk in (1, 7, 32):
            cases[f"{threads} threads, chunk {chunk}"] = ["--threads", threads, "--chunk", chunk]
    for isa in isas:
        cases[f"isa {isa}"] = ["--isa", isa]
        cases[f"isa {isa}, 1 thread, chunk 7, one unit"] = ["--isa", isa, "--threads", 1, "--chunk", 7, "--trunk-gb", unit,
                                                           "--cache-gb", layer]
    return cases


def sizes_of(model, work):
    """Byte counts that place the budgets exactly, as the services report them."""
    with k3.pipeline(work, model=model, unit_mb=UNIT_MB, trunk_gb=1, cache_gb=1) as running:
        status = json.loads(k3.k3("status", "--pipeline", running.run_dir, "--json").stdout)
    counters = {service["service"]: service["counters"] for service in status["services"]}
    trunk, experts = counters["trunk"], counters["experts"]
    config = json.loads((pathlib.Path(model) / "config.json").read_text())["text_config"]
    return {
        "largest_unit": trunk["arena_bytes"] / trunk["slots"],
        "trunk": trunk["arena_bytes"],
        "expert": experts["arena_bytes"] / experts["slots"],
        "layer_demand": experts["arena_bytes"] / experts["slots"] * config["num_experts_per_token"],
    }


@pytest.mark.parametrize("case", ["odd_widths", "two_dense"])
def test_every_way_of_running_gives_the_same_bits(case, tmp_path):
    model, work = tmp_path / "model", tmp_path / "work"
    awkward_checkpoints.write_checkpoint(case, model)
    k3.k3("pack", "--model", model, "--out", tmp_path / "packed", "--unit-mb", UNIT_MB)
    k3.k3("pack", "--model", model, "--out", tmp_path / "raw", "--unit-mb", UNIT_MB, "--raw")
    sizes = sizes_of(model, tmp_path)
    runs = variants(sizes, supported_isas(tmp_path / "demo"))
    streamed = [name for name in runs if "unit" in name or "half" in name or "pinned" in name or "isa" in name]
    for packed in ("packed", "raw"):
        runs |= {f"{packed}, {name}": runs[name] + ["--trunk", tmp_path / packed] for name in streamed}
    common = ["--model", model, "--work", work, "--ids", k3.comma(PROMPT), "--gen", GENERATE, "--unit-mb", UNIT_MB]
    first = None
    for number, (name, arguments) in enumerate(runs.items()):
        dump = tmp_path / f"{number}.f32"
        report = k3.generate(*common, *arguments, "--dump-logits", dump, "--dump-positions", "last")
        assert len(report["generated_ids"]) == GENERATE
        outcome = (report["generated_ids"], dump.read_bytes())
        first = first or outcome
        assert outcome == first, f"{name}: {report['generated_ids']}, expected {first[0]}"


@pytest.mark.parametrize("positions", [63, 64, 65, 300])
def test_long_prompts_give_the_same_bits_wherever_chunks_end(positions, tmp_path):
    """The latent cache is walked in blocks, which chunks cut at other positions; large chunks multiply by panels."""
    prompt = [(37 * position + position // 7) % 300 for position in range(positions)]
    common = ["--model", k3.DEMO, "--work", tmp_path / "work", "--ids", k3.comma(prompt), "--gen", 4, "--dump-positions", "last"]
    outcomes = []
    for number, (chunk, threads, isa) in enumerate([(32, 2, None), (7, 1, None), (64, 2, None), (33, 1, "reference"),
                                                    (100, 2, None)]):
        dump = tmp_path / f"{number}.f32"
        table = ["--isa", isa] if isa else []
        report = k3.generate(*common, "--chunk", chunk, "--threads", threads, *table, "--dump-logits", dump)
        outcomes.append((report["generated_ids"], dump.read_bytes()))
    assert all(outcome == outcomes[0] for outcome in outcomes)
