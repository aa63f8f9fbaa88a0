"""The timeline: valid for Chrome's viewer, of every service, and each token's time explained."""

import json
import subprocess

import pytest

import k3
import timeline

COVERED = 0.97
ATTEMPTS = 3  # a processor taken away between two spans is time that none of them explains
COMPUTE = {"token", "pass", "embedding", "kda", "mla", "moe", "router", "shared expert", "expert", "residual mix",
           "norm", "head", "choose", "messaging"}


def check(path, tokens):
    events = timeline.load(path)
    assert timeline.names_in(events, "k3-compute") >= COMPUTE
    assert "read" in timeline.names_in(events, "k3-experts") | timeline.names_in(events, "k3-trunk")
    assert timeline.process_of(events, "k3-tokenizer")
    numbers = [e["args"]["token"] for e in events["X"] if e["name"] == "token"]
    assert numbers == list(range(tokens))
    return events


def model_of(name):
    return k3.DEMO if name == "demo" else k3.reference_dir() / name


@pytest.mark.parametrize("model", ["demo", "small_released_layout"])
def test_run_writes_the_timeline_of_its_generation(tmp_path, model):
    out = tmp_path / "trace.json"
    least = 0.0
    for _ in range(ATTEMPTS):
        k3.k3("run", "--model", model_of(model), "--work", tmp_path / "work", "--ids", "1,2,3", "--gen", 8,
              "--trunk-gb", "0.006", "--cache-gb", "0.0006", "--trace", out)
        shares = timeline.token_coverage(check(out, 8))
        assert len(shares) == 8
        least = max(least, min(shares))
        if least >= COVERED:
            return
    pytest.fail(f"spans explain {least:.1%} of a token, expected {COVERED:.0%}")


def test_spans_change_no_id(tmp_path):
    flags = ("--model", k3.DEMO, "--work", tmp_path / "work", "--ids", "5,6", "--gen", 6)
    traced = k3.generate(*flags, "--trace", tmp_path / "trace.json")
    assert traced["generated_ids"] == k3.generate(*flags)["generated_ids"]


def test_trace_records_a_running_pipeline_for_a_time(tmp_path):
    out = tmp_path / "trace.json"
    with k3.pipeline(tmp_path, model=k3.DEMO) as it:
        recorder = subprocess.Popen([str(k3.BIN / "k3"), "trace", "--pipeline", str(it.run_dir), "--out", str(out),
                                     "--seconds", "3"], stderr=subprocess.PIPE, text=True)
        k3.wait_until(lambda: "on=true" in it.log("compute"), "spans in compute")
        k3.k3("run", "--pipeline", it.run_dir, "--ids", "1,2,3", "--gen", 4)
        told = recorder.communicate(timeout=k3.PATIENCE_SECONDS)[1]
        assert recorder.returncode == 0, told
        assert " 0 dropped" in told
        k3.wait_until(lambda: "on=false" in it.log("compute"), "the end of spans in compute")
    events = check(out, 4)
    assert len(timeline.process_of(events, "k3-trunk")) == 1


def test_an_output_that_cannot_be_written_is_refused_first(tmp_path):
    refused = k3.k3("run", "--model", k3.DEMO, "--ids", "1", "--gen", 1, "--trace", tmp_path / "no" / "t.json",
                    check=False)
    assert refused.returncode == 3
    assert "--trace" in refused.stderr


def written(path, *events):
    names = [{"ph": "M", "name": name, "pid": 1, "tid": 1, "args": {"name": "k3-compute"}}
             for name in ("process_name", "thread_name")]
    path.write_text(json.dumps({"traceEvents": [*names, *events], "otherData": {"dropped": 0}}))
    return path


def event(name, ts, dur, pid=1):
    return {"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": ts, "dur": dur, "args": {"token": 0, "n": 0}}


@pytest.mark.parametrize("events, reason", [
    ([event("kda", 0, 10), event("mla", 5, 10)], "crosses"),
    ([event("kda", 0, -1)], "dur"),
    ([event("kda", 0, 1, pid=2)], "kda"),
])
def test_the_checker_refuses(tmp_path, events, reason):
    with pytest.raises(AssertionError, match=reason):
        timeline.load(written(tmp_path / "t.json", *events))


def test_the_checker_counts_overlapping_spans_once_and_whole_ones_never(tmp_path):
    path = written(tmp_path / "t.json", event("token", 0, 100), event("pass", 0, 90), event("kda", 10, 40),
                   event("wait for unit", 20, 10), event("head", 60, 20))
    assert timeline.token_coverage(timeline.load(path)) == [0.6]
