"""The stages measured alone: what their reports count is exact; times are only there."""

import json
import subprocess

import pytest

import k3


def bench(service, *arguments, json_file, check=True):
    command = [str(word) for word in (k3.BIN / service, *arguments, "--json", json_file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)
    if not check:
        return result
    assert result.returncode == 0, result.stderr
    return result, json.loads(json_file.read_text())


def trunk_bytes(model):
    """Bytes of all tensors used on each token: all but experts and embedding, A_log without its tail of zeros."""
    heads = json.loads((model / "config.json").read_text())["text_config"]["linear_attn_config"]["num_heads"]
    total = 0
    for shard in model.glob("*.safetensors"):
        with shard.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            if ".experts." in name or name.endswith("embed_tokens.weight"):
                continue
            total += 4 * heads if name.endswith("A_log") else end - begin
    return total


def test_the_tokenizer_counts_the_ids_of_the_text(tmp_path):
    text, out = tmp_path / "text", tmp_path / "out.json"
    text.write_bytes(bytes([0x07] * 7))  # controls: no token of the demo vocabulary joins two of them
    result, report = bench("k3-tokenizer", "--model", k3.DEMO, "--bench", text, "--repeat", 3, json_file=out)
    assert report["file"] == str(text) and report["repeat"] == 3
    assert report["encode"]["bytes"] == report["decode"]["bytes"] == 7
    assert report["encode"]["tokens"] == report["decode"]["tokens"] == 7
    for part in ("encode", "decode"):
        seconds = report[part]["seconds"]
        assert len(seconds) == 3 and min(seconds) > 0
        assert report[part]["median_seconds"] == sorted(seconds)[1]
    assert "tokens/s" in result.stdout.splitlines()[0] and len(result.stdout.splitlines()) == 3


def test_the_tokenizer_needs_a_run_directory_or_a_file_to_measure(tmp_path):
    without = subprocess.run([k3.BIN / "k3-tokenizer", "--model", k3.DEMO], capture_output=True, text=True, check=False)
    assert without.returncode == 2 and "--run is required" in without.stderr
    (tmp_path / "empty").touch()
    empty = bench("k3-tokenizer", "--model", k3.DEMO, "--bench", tmp_path / "empty", json_file=tmp_path / "o", check=False)
    assert empty.returncode == 2 and "empty" in empty.stderr


def test_the_trunk_reads_every_byte_of_a_pass_at_every_depth_and_size(tmp_path):
    result, report = bench("k3-trunk", "--bench", "--model", k3.DEMO, "--bench-units-mb", "0.3,1.0", "--bench-depths", "1,3",
                           "--repeat", 2, json_file=tmp_path / "out.json")
    rows = report["rows"]
    assert [(row["unit_mb"], row["depth"]) for row in rows] == [(0.3, 1), (0.3, 3), (1.0, 1), (1.0, 3)]
    assert {row["bytes"] for row in rows} == {trunk_bytes(k3.DEMO)}
    assert rows[0]["units"] > rows[2]["units"] > 1
    assert all(row["gb_per_second"] > 0 and row["device_gb_per_second"] > 0 for row in rows)
    assert "% device" in result.stdout


def test_the_trunk_bench_stops_at_its_limit_and_refuses_what_it_cannot_do(tmp_path):
    out = tmp_path / "out.json"
    _, report = bench("k3-trunk", "--bench", "--model", k3.DEMO, "--bench-units-mb", "0.3", "--bench-depths", "2", "--repeat", 1,
                      "--bench-gb", "0.000001", json_file=out)
    assert [row["units"] for row in report["rows"]] == [1]
    refused = bench("k3-trunk", "--bench", "--model", k3.DEMO, "--unit-mb", "-1", json_file=out, check=False)
    assert refused.returncode == 2 and "unit size" in refused.stderr


TRACE = "k3-expert-trace 1\np 1 0 1 2 3 4 5\nd 1 4 5 6 7\nd 2 4 5 6 7\nd 1 7 6 5 4\n"
EXPERT_BYTES = 14688  # of the demo model


def replay(tmp_path, trace, *arguments, check=True):
    k3.k3("index", "--model", k3.DEMO, "--work", tmp_path / "work")
    return bench("k3-experts", "--replay", trace, "--model", k3.DEMO, "--work", tmp_path / "work", *arguments,
                 json_file=tmp_path / "out.json", check=check)


def counts(report):
    return {row["phase"]: (row["fetches"], row["experts"], row["hits"], row["bytes_read"]) for row in report["rows"]}


def test_a_replay_counts_hits_and_bytes_by_phase(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text(TRACE)
    result, report = replay(tmp_path, trace)
    assert counts(report) == {"prefill": (1, 6, 0, 6 * EXPERT_BYTES), "decode": (3, 12, 6, 6 * EXPERT_BYTES)}
    assert report["slots"] == 192 and report["evictions"] == 0
    assert "p99 ms" in result.stdout


def test_a_replay_in_a_cache_of_four_slots_evicts_and_takes_rounds(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text(TRACE)
    _, report = replay(tmp_path, trace, "--cache-gb", 4 * 14720 / 1e9)
    # Each demand finds what the one before left: 4 and 5 of the prefill, nothing of another layer.
    assert counts(report) == {"prefill": (1, 6, 0, 6 * EXPERT_BYTES), "decode": (3, 12, 2, 10 * EXPERT_BYTES)}
    assert report["slots"] == 4 and report["evictions"] == 12


def test_a_replay_takes_pairs_without_a_header(tmp_path):
    trace = tmp_path / "pairs"
    pairs = [(layer, expert) for layer in (1, 2, 1) for expert in (3, 9, 1, 2)]
    trace.write_bytes(b"".join(number.to_bytes(4, "little") for pair in pairs for number in pair))
    _, report = replay(tmp_path, trace)
    assert counts(report) == {"unknown": (3, 12, 4, 8 * EXPERT_BYTES)}


@pytest.mark.parametrize("content,named", [
    ("k3-expert-trace 1\nd 1 2\nx 1 2\n", "line 3"), ("k3-expert-trace 1\nd 1 4 99999999999\n", "line 2"),
    ("k3-expert-trace 1\nd 1 4 -\n", "line 2"), ("k3-expert-trace 1\nd 1 -1\n", "line 2"), ("k3-expert-trace 1\nd 0 1\n", "layer 0"), ("12345", "5 bytes")])
def test_a_trace_that_makes_no_sense_is_refused(content, named, tmp_path):
    trace = tmp_path / "trace"
    trace.write_text(content)
    result = replay(tmp_path, trace, check=False)
    assert result.returncode == 2 and named in result.stderr


def test_a_run_records_what_a_replay_plays(tmp_path):
    trace = tmp_path / "trace"
    report = k3.generate("--model", k3.DEMO, "--work", tmp_path / "work", "--ids", "5,6,7,8,9", "--gen", 4, "--chunk", 2,
                         "--trace-experts", trace)
    lines = [line.split() for line in trace.read_text().splitlines()[1:]]
    # Six layers with experts: three passes of prefill (2, 2 and 1 positions), then three tokens.
    assert [line[0] for line in lines] == ["p"] * 18 + ["d"] * 18
    assert [int(line[1]) for line in lines] == [1, 2, 3, 4, 5, 6] * 6
    assert all(len(line) == 6 for line in lines[12:])
    _, replayed = replay(tmp_path, trace)
    requests = report["expert_requests"]
    assert sum(row["hits"] for row in replayed["rows"]) == requests["hits"]
    assert sum(row["misses"] for row in replayed["rows"]) == requests["misses"]


def test_a_trace_goes_on_after_its_last_whole_line(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("k3-expert-trace 1\np 1 0 1\nd 1 4 5")
    k3.generate("--model", k3.DEMO, "--work", tmp_path / "work", "--ids", "5,6", "--gen", 1, "--trace-experts", trace)
    lines = trace.read_text().splitlines()
    assert lines[:2] == ["k3-expert-trace 1", "p 1 0 1"]
    assert lines[2].startswith("p 1 ") and len(lines) > 3


@pytest.mark.parametrize("experts,named", [("cache", "not an expert trace"), ("pagecache", "only k3-experts records")])
def test_a_trace_that_cannot_be_recorded_is_refused(experts, named, tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("a letter to a friend\n")
    result = k3.k3("run", "--model", k3.DEMO, "--work", tmp_path / "work", "--ids", "5,6", "--gen", 1, "--experts", experts,
                   "--trace-experts", trace, check=False)
    assert result.returncode == 2 and named in result.stderr
    assert trace.read_text() == "a letter to a friend\n"


def test_a_recorded_run_is_computed_again_without_other_processes(tmp_path):
    work, recording = tmp_path / "work", tmp_path / "recording"
    k3.generate("--model", k3.DEMO, "--work", work, "--ids", "5,6,7,8,9", "--gen", 16, "--chunk", 3, "--record", recording)
    model = ("--replay", recording, "--model", k3.DEMO, "--work", work)
    _, report = bench("k3-compute", *model, "--threads", 2, "--isa", "reference", json_file=tmp_path / "out.json")
    assert (report["passes"], report["incomplete"], report["full"]) == (2 + 15, 0, False)
    assert [row["layer"] for row in report["rows"]] == [*map(str, range(7)), "head"]
    assert [row["passes"] for row in report["rows"]] == [17] * 7 + [16]  # the first chunk wants no logits
    damaged = bytearray(recording.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    recording.write_bytes(damaged)
    refused = bench("k3-compute", *model, json_file=tmp_path / "out.json", check=False)
    assert refused.returncode == 2 and "frame" in refused.stderr and "checksum" in refused.stderr


@pytest.mark.parametrize("flag", ["--trace-experts", "--record"])
def test_a_run_that_cannot_write_what_was_asked_for_ends_with_the_reason(flag, tmp_path):
    target = tmp_path / "missing" / "file"
    result = k3.k3("run", "--model", k3.DEMO, "--work", tmp_path / "work", "--ids", "5,6", "--gen", 1, flag, target, check=False)
    assert result.returncode == 3 and str(target) in result.stderr
