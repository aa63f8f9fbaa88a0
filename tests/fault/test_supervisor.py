"""The supervisor: any order, back-off, budget, reasons, and a clean end."""

import os
import signal
import time

import awkward_checkpoints
import k3


def test_stops_within_five_seconds_and_leaves_nothing(tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        assert len(k3.stage_processes()) == len(k3.STAGES)
        begin = time.monotonic()
        running.stop()
        assert time.monotonic() - begin < 5
        assert not running.run_dir.exists()
    assert k3.stage_processes() == []


def test_gives_up_after_the_budget_with_the_reason(tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        failed = running.run_dir / "tokenizer.failed"
        while not failed.exists():
            pid = running.pid("tokenizer")
            if pid:
                os.kill(pid, signal.SIGKILL)
                k3.wait_until(lambda p=pid: failed.exists() or running.pid("tokenizer") not in (p, None),
                              "a restart or a reason")
        assert "died 13 times" in failed.read_text()
        refused = k3.k3("run", "--pipeline", running.run_dir, "--prompt", "hello", "--gen", 1, check=False)
        assert refused.returncode == 1
        assert "tokenizer" in refused.stderr and "died 13 times" in refused.stderr


def test_a_configuration_error_is_not_retried(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    k3.k3("index", "--model", model, "--work", tmp_path / "work")
    running = k3.Pipeline(tmp_path / "run", dict(model=model, work=tmp_path / "work", cache_gb="0.000001"), {})
    started = running.start()
    try:
        assert started.returncode == 2
        assert "experts" in started.stderr
        assert running.log("experts").count("exit error=") == 1
    finally:
        running.stop()


def test_a_stage_started_late_is_waited_for(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    with k3.pipeline(tmp_path, model=model) as running:
        expected = k3.k3("run", "--pipeline", running.run_dir, "--ids", "3,7,11", "--gen", 3).stdout
        for stage in ("trunk", "experts", "compute", "tokenizer"):
            os.kill(running.pid(stage), signal.SIGKILL)
        assert k3.k3("run", "--pipeline", running.run_dir, "--ids", "3,7,11", "--gen", 3).stdout == expected
