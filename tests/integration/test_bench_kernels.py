"""`k3-bench kernels`: every case beside both limits of the machine, in table and JSON. No time is asserted."""

import json
import subprocess

import pytest

import k3

# Enough for one repetition of every case, too little for a figure that means something.
SHORT = ("--memory-gb", "0.001", "--seconds", "0.001", "--repetitions", "1")
FLOPS_PER_MULTIPLY_ADD = 2


def bench(*arguments):
    command = [str(k3.BIN / "k3-bench"), "kernels", *SHORT, *(str(a) for a in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)


def test_cases_are_fractions_of_the_limits_of_the_same_run(tmp_path):
    path = tmp_path / "kernels.json"
    result = bench("--filter", ":(memory|multiply-add|bf16 896|mxfp4)", "--isa", "avx2", "--json", path)
    assert result.returncode == 0, result.stderr
    rows = {row["case"]: row for row in json.loads(path.read_text())}
    assert set(rows) == {"memory read", "multiply-add in registers", "bf16 896x7168 x 1", "mxfp4 3072x3584 x 1",
                         "mxfp4 3072x3584 x 32"}
    read, peak = rows["memory read"], rows["multiply-add in registers"]
    router, batch = rows["bf16 896x7168 x 1"], rows["mxfp4 3072x3584 x 32"]
    assert router["gb_per_s"] * router["seconds"] == pytest.approx(896 * 7168 * 2 / 1e9)
    assert router["of_read_rate"] == pytest.approx(router["gb_per_s"] / read["gb_per_s"])
    assert batch["gflop_per_s"] * batch["seconds"] == pytest.approx(FLOPS_PER_MULTIPLY_ADD * 3072 * 3584 * 32 / 1e9)
    assert batch["of_peak"] == pytest.approx(batch["gflop_per_s"] / peak["gflop_per_s"])
    for name in rows:
        assert name in result.stdout


def test_an_unknown_instruction_set_is_refused():
    result = bench("--isa", "abacus")
    assert result.returncode == 2 and "abacus" in result.stderr
