"""Memory beyond what the host has is refused before it is allocated: the sum by `k3 run` and by
`k3-pipeline start`, its own part by each stage. The model has the released size, without its bytes."""

import pathlib
import subprocess

import pytest

import k3

EVERYTHING_GB = "2000"
TRUNK_GB = 115  # of the released model: no budget makes the arena larger


def available_gb():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise AssertionError("no MemAvailable")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    directory = tmp_path_factory.mktemp("released")
    k3.k3("make-checkpoint", "--out", directory / "model", "--shape", "released", "--sparse")
    k3.k3("index", "--model", directory / "model", "--work", directory / "work")
    return directory


@pytest.fixture(scope="module")
def two_thirds():
    """A budget that fits once, not twice."""
    return f"{available_gb() * 2 / 3:.3f}"


def assert_refused(result, part):
    assert result.returncode == 1, result.stderr
    assert "not enough memory" in result.stderr
    assert part in result.stderr and "usable" in result.stderr


def test_run_refuses_a_sum_whose_parts_fit(released, two_thirds):
    result = k3.k3("run", "--model", released / "model", "--work", released / "work", "--ids", "1", "--gen", "1",
                   "--trunk-gb", two_thirds, "--cache-gb", two_thirds, check=False)
    assert_refused(result, "experts")
    assert k3.stage_processes() == []


def test_a_standing_pipeline_refuses_it_too(released, two_thirds, tmp_path):
    it = k3.Pipeline(tmp_path / "run", {"model": released / "model", "work": released / "work", "trunk_gb": two_thirds,
                                        "cache_gb": two_thirds}, {})
    assert_refused(it.start(), "experts")
    assert not it.run_dir.exists()


@pytest.mark.parametrize("stage,part,flags,most_gb", [
    ("k3-trunk", "trunk arena", ["--trunk-gb", EVERYTHING_GB], TRUNK_GB),
    ("k3-experts", "expert arena", ["--cache-gb", EVERYTHING_GB, "--work", "work"], 1400),
])
def test_a_stage_refuses_its_arena(stage, part, flags, most_gb, released, tmp_path):
    if available_gb() > most_gb:
        pytest.skip(f"this host has room for {most_gb} GB")
    command = [k3.BIN / stage, "--run", tmp_path, "--model", "model", *flags]
    result = subprocess.run(command, cwd=released, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS,
                            check=False)
    assert_refused(result, part)
