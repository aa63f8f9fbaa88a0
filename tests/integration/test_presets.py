"""Presets: the same output in less memory than planned, refused by name; the ladder of tools/bench."""

import contextlib
import json
import os
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


def own_memory_group():
    """The control group that limits this process, and its limit file; version 2 or version 1."""
    for entry in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = entry.split(":", 2)
        root = pathlib.Path("/sys/fs/cgroup")
        if "memory" in controllers.split(","):
            return root / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        if not controllers and (root / "cgroup.controllers").exists():
            return root / path.lstrip("/"), "memory.max"
    pytest.skip("no memory control group")


@contextlib.contextmanager
def hard_limit(limit_bytes):
    """A group below this process's own that holds `limit_bytes`; beyond that the kernel kills."""
    parent, limit_file = own_memory_group()
    group = parent / f"k3-presets-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        try:
            (group / limit_file).write_text(str(limit_bytes))
        except OSError as error:
            pytest.skip(f"memory cannot be limited here: {error}")
        yield group
    finally:
        k3.wait_until(lambda: not (group / "cgroup.procs").read_text().strip(), "the group to empty")
        group.rmdir()


def run_inside(group, *arguments):
    command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', group / "cgroup.procs", k3.BIN / "k3", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)


def test_a_hard_limit_of_the_planned_size_is_enough_and_half_of_it_is_refused(model, tmp_path):
    report, stderr = run(model, tmp_path, "floor")
    planned = planned_bytes(stderr)
    limited_json = tmp_path / "limited.json"
    flags = ["run", "--model", model, "--work", tmp_path, "--ids", "1,2", "--gen", "4", "--preset", "floor",
             "--json", limited_json]
    with hard_limit(int(planned * 1.05)) as group:  # this command is inside before it plans
        result = run_inside(group, *flags)
    assert result.returncode == 0, result.stderr
    limited = json.loads(limited_json.read_text())
    assert limited["generated_ids"] == report["generated_ids"]
    assert limited["restarts"] == 0
    with hard_limit(int(planned / 2)) as group:
        result = run_inside(group, *flags)
    assert result.returncode == 1
    assert "not enough memory" in result.stderr and "control group" in result.stderr


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
