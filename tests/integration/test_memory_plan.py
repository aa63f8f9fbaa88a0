"""Memory beyond what the host has is refused before it is allocated: by the command line for the
whole plan, by each stage for its own part. The model has the released size, without its bytes."""

import subprocess

import pytest

import k3

EVERYTHING_GB = "2000"


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    directory = tmp_path_factory.mktemp("released")
    k3.k3("make-checkpoint", "--out", directory / "model", "--shape", "released", "--sparse")
    k3.k3("index", "--model", directory / "model", "--work", directory / "work")
    return directory


def assert_refused(result, part):
    assert result.returncode == 1, result.stderr
    assert "not enough memory" in result.stderr
    assert part in result.stderr and "usable" in result.stderr


def test_the_command_line_refuses_the_sum(released):
    result = k3.k3("run", "--model", released / "model", "--work", released / "work", "--ids", "1", "--gen", "1",
                   "--trunk-gb", EVERYTHING_GB, "--cache-gb", EVERYTHING_GB, check=False)
    assert_refused(result, "experts")
    assert k3.stage_processes() == []


@pytest.mark.parametrize("stage,part,flags", [
    ("k3-trunk", "trunk arena", ["--trunk-gb", EVERYTHING_GB]),
    ("k3-experts", "expert arena", ["--cache-gb", EVERYTHING_GB, "--work"]),
])
def test_a_stage_refuses_its_arena(stage, part, flags, released, tmp_path):
    command = [k3.BIN / stage, "--run", tmp_path, "--model", released / "model", *flags]
    if flags[-1] == "--work":
        command.append(released / "work")
    result = subprocess.run(command, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)
    assert_refused(result, part)
