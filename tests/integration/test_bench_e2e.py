"""`k3-bench e2e` over the real processes: everything is reported, and the parts are the whole. No time is asserted."""

import json
import os
import subprocess

import pytest

import k3

PARTS = ("wait_trunk_seconds", "wait_experts_seconds", "computing_seconds", "messaging_seconds")
NANOSECONDS = 1e-9
# A packed trunk of units this small has enough of them to stream.
UNIT_MB = "0.5"


def bench(*arguments):
    command = [str(k3.BIN / "k3-bench"), "e2e", *(str(a) for a in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A work folder of the demo model with a packed trunk."""
    folder = tmp_path_factory.mktemp("work")
    k3.k3("pack", "--model", k3.DEMO, "--out", folder, "--unit-mb", UNIT_MB)
    return folder


@pytest.fixture(scope="module")
def measured(work, tmp_path_factory):
    """Table and JSON of two runs of three decoded tokens in both cases."""
    path = tmp_path_factory.mktemp("report") / "e2e.json"
    result = bench("--model", k3.DEMO, "--work", work, "--prompt-tokens", "5", "--tokens", "3", "--runs", "2", "--threads", "1",
                   "--json", path)
    assert result.returncode == 0, result.stderr
    return result.stdout, json.loads(path.read_text())


def phases(report):
    return [(case, case[name]) for case in report["cases"] for name in ("prefill", "decode")]


def test_both_cases_are_reported_with_every_token(measured):
    report = measured[1]
    assert [case["case"] for case in report["cases"]] == ["resident", "streamed"]
    assert (report["prompt_tokens"], report["tokens"], report["runs"], report["threads"]) == (5, 3, 2, 1)
    assert report["packed_trunk"] is True and len(report["fingerprint"]) == 32 and report["isa"]
    for case in report["cases"]:
        assert len(case["prefill"]["measured"]) == 2
        assert len(case["decode"]["measured"]) == 2 * 3


def test_parts_add_up_to_the_time_the_client_saw(measured):
    for _, phase in phases(measured[1]):
        for token in [phase["mean"], *phase["measured"]]:
            assert sum(token[part] for part in PARTS) == pytest.approx(token["seconds"], abs=NANOSECONDS)
            assert min(token["wait_trunk_seconds"], token["wait_experts_seconds"], token["computing_seconds"]) >= 0
        overhead = 100 * (1 - phase["mean"]["computing_seconds"] / phase["mean"]["seconds"])
        assert phase["overhead_percent"] == pytest.approx(overhead)


def test_summaries_are_of_the_tokens(measured):
    for _, phase in phases(measured[1]):
        seconds = sorted(token["seconds"] for token in phase["measured"])
        assert phase["median_seconds"] == seconds[len(seconds) // 2]
        assert phase["best_seconds"] == seconds[0]
        assert phase["mean"]["seconds"] == pytest.approx(sum(seconds) / len(seconds))


def test_only_the_streamed_case_reads_weights(measured):
    resident, streamed = measured[1]["cases"]
    row_bytes = 2 * 192
    positions = 2 * (5 + 3)
    assert resident["bytes_read"] == {"trunk": positions * row_bytes, "experts": 0}
    assert streamed["bytes_read"]["trunk"] > 0 and streamed["bytes_read"]["experts"] > 0
    for kind in ("trunk", "experts"):
        assert streamed["budgets"][kind] < resident["budgets"][kind]


def test_table_has_a_row_for_every_phase_with_its_numbers(measured):
    table, report = measured
    rows = {tuple(line.split()[:2]): line.split() for line in table.splitlines() if line.split()[1:2] in (["prefill"], ["decode"])}
    assert len(rows) == 4
    for case in report["cases"]:
        for name in ("prefill", "decode"):
            numbers = [word for word in rows[case["case"], name][2:] if word not in ("=", "+", "%")]
            phase = case[name]
            expected = [phase["median_seconds"], phase["best_seconds"], phase["mean"]["seconds"],
                        *(phase["mean"][part] for part in PARTS)]
            assert [float(number) for number in numbers[:-1]] == pytest.approx(expected, abs=0.5001e-4)
            assert float(numbers[-1]) == pytest.approx(phase["overhead_percent"], abs=0.5001e-2)


def test_one_case_alone_without_a_packed_trunk(tmp_path):
    path = tmp_path / "e2e.json"
    result = bench("--model", k3.DEMO, "--work", tmp_path, "--tokens", "1", "--runs", "1", "--only", "streamed", "--trunk-gb",
                   "0.02", "--cache-gb", "0.002", "--json", path)
    assert result.returncode == 0, result.stderr
    report = json.loads(path.read_text())
    assert [case["case"] for case in report["cases"]] == ["streamed"]
    assert report["packed_trunk"] is False


@pytest.mark.parametrize("arguments,named", [(["--tokens", "0"], "--tokens"), (["--only", "both"], "both"),
                                             (["--model", os.devnull], os.devnull)])
def test_bad_flags_are_refused_by_name(arguments, named):
    flags = arguments if "--model" in arguments else ["--model", str(k3.DEMO), *arguments]
    result = bench(*flags)
    assert result.returncode in (2, 4)
    assert named in result.stderr
    assert k3.stage_processes() == []
