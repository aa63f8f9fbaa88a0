"""The experts out of the kernel's page cache: chosen by one word, the same ids, killed at will."""

import json
import os
import shutil
import signal
import subprocess

import pytest

import k3

PROMPT = [3, 7, 11, 500, 9, 60, 41]
GENERATE = 24
PAGE_CACHE = "k3-experts-pagecache"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A copy of the demo model, whose pages a test may throw out of memory."""
    directory = tmp_path_factory.mktemp("demo") / "model"
    shutil.copytree(k3.DEMO, directory)
    return directory


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    return run(model, tmp_path_factory.mktemp("cache"), "--experts", "cache")["generated_ids"]


def run(model, tmp_path, *arguments):
    return k3.generate("--model", model, "--work", tmp_path / "work", "--ids", k3.comma(PROMPT), "--gen", GENERATE, *arguments)


def forget_pages(model):
    """Out of the page cache, as far as the kernel follows the advice."""
    for shard in model.glob("*.safetensors"):
        fd = os.open(shard, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def test_the_same_ids_without_an_index_and_without_an_arena(model, expected, tmp_path):
    forget_pages(model)
    report = run(model, tmp_path, "--experts", "pagecache")
    assert report["generated_ids"] == expected
    assert report["budgets"]["experts"] == 0
    assert not (tmp_path / "work" / "experts.k3x").exists()
    requests = report["expert_requests"]
    # Six MoE layers, four experts a position: what a layer asks for twice in a pass counts once.
    assert 6 * 4 * GENERATE <= sum(requests.values()) <= 6 * 4 * (len(PROMPT) + GENERATE)
    assert (report["bytes_read"]["experts"] > 0) == (requests["misses"] > 0)
    again = run(model, tmp_path, "--experts", "pagecache")
    assert again["generated_ids"] == expected
    assert again["expert_requests"]["misses"] == 0 and again["bytes_read"]["experts"] == 0


def test_the_same_ids_through_the_python_example(model, expected, tmp_path):
    assert run(model, tmp_path, "--experts", k3.PYTHON_EXPERTS)["generated_ids"] == expected


def test_an_unknown_service_is_refused_by_name(model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "1", "--gen", "1", "--experts", "k3-no-such", check=False)
    assert result.returncode == 2
    assert "k3-no-such" in result.stderr


def test_a_pipeline_goes_on_when_it_is_killed(model, expected, tmp_path):
    with k3.pipeline(tmp_path, model=model, experts=PAGE_CACHE, trunk_gb="0.0005", unit_mb="0.05", chunk=2) as running:
        words = [str(k3.BIN / "k3"), "run", "--pipeline", str(running.run_dir), "--ids", k3.comma(PROMPT), "--gen", str(GENERATE),
                 "--json", str(tmp_path / "report.json"), "-v"]
        log = tmp_path / "log"
        with log.open("w") as stderr:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=stderr)
        k3.wait_until(lambda: k3.tokens_in(log) >= 2, "the generation to begin")
        pid = running.pid("experts")
        assert os.readlink(f"/proc/{pid}/exe").endswith("/" + PAGE_CACHE)
        os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=k3.PATIENCE_SECONDS) == 0, log.read_text()
        assert json.loads((tmp_path / "report.json").read_text())["generated_ids"] == expected
        assert "arena" not in running.log("experts")
