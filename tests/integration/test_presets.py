"""Presets: the same output in less memory than planned, refused by name; the ladder of tools/bench."""

import json
import pathlib
import re
import subprocess

import pytest

import awkward_checkpoints
import k3

LADDER = pathlib.Path(__file__).resolve().parents[2] / "tools/bench/ladder"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    awkward_checkpoints.write_checkpoint("odd_widths", directory)
    return directory


def run(model, tmp_path, preset):
    report = tmp_path / f"{preset}.json"
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "1,2", "--gen", "4", "--preset", preset,
                   "--json", report)
    return json.loads(report.read_text()), result.stderr


def planned_bytes(stderr):
    number, unit = re.search(r"sum +([0-9.]+) ([kMG]B)", stderr).groups()
    return float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def test_presets_give_the_same_ids_within_their_plan(model, tmp_path):
    reports = {preset: run(model, tmp_path, preset) for preset in ("floor", "auto", "max")}
    assert len({tuple(report["generated_ids"]) for report, _ in reports.values()}) == 1
    for preset, (report, stderr) in reports.items():
        assert 0 < report["peak_memory_bytes"] <= planned_bytes(stderr), preset


def test_an_unknown_preset_is_refused_by_name(model):
    result = k3.k3("plan", "--model", model, "--preset", "huge", check=False)
    assert result.returncode == 2
    assert "huge" in result.stderr and "laptop" in result.stderr


def test_ladder_has_a_line_a_preset(model):
    result = subprocess.run([LADDER, "--model", model, "--bin", k3.BIN, "--presets", "floor,max", "--gen", "3"],
                            capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    rows = [line.split("|")[1:-1] for line in result.stdout.splitlines()]
    assert [row[0].strip() for row in rows] == ["preset", "---", "floor", "max"]
    for row in rows[2:]:
        assert float(row[3]) > 0 and float(row[5]) > 0, row
