"""The supervisor: any order, back-off, budget, reasons, and a clean end."""

import json
import os
import shutil
import signal
import subprocess
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
    running = k3.Pipeline(tmp_path / "run", dict(model=model, work=tmp_path / "work", isa="neon9"), {})
    started = running.start()
    try:
        assert started.returncode == 2
        assert "compute" in started.stderr and "neon9" in started.stderr
        assert running.log("compute").count("exit error=") == 1
    finally:
        running.stop()


def test_a_pipeline_whose_run_directory_is_removed_ends(tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        shutil.rmtree(running.run_dir)
        k3.wait_until(lambda: k3.stage_processes() == [], "the end of all stages")


def test_a_supervisor_that_is_stopped_can_be_ended(tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        os.kill(int((running.run_dir / "supervisord.pid").read_text()), signal.SIGSTOP)
        running.stop()
        assert not running.run_dir.exists()
        k3.wait_until(lambda: k3.stage_processes() == [], "the end of all stages")


def test_a_stage_started_late_is_waited_for(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    with k3.pipeline(tmp_path, model=model) as running:
        expected = k3.k3("run", "--pipeline", running.run_dir, "--ids", "3,7,11", "--gen", 3).stdout
        for stage in ("trunk", "experts", "compute", "tokenizer"):
            os.kill(running.pid(stage), signal.SIGKILL)
        assert k3.k3("run", "--pipeline", running.run_dir, "--ids", "3,7,11", "--gen", 3).stdout == expected


def test_a_supervisor_that_does_not_start_says_why(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    running = k3.Pipeline(tmp_path / ("x" * 100) / "run", dict(model=model), {})  # too long for its socket
    started = running.start()
    assert started.returncode == 1
    assert "AF_UNIX path too long" in started.stderr and "supervisord.log" in started.stderr
    assert "exit code 0" not in started.stderr


def test_a_start_that_fails_leaves_no_supervisor(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    k3.k3("index", "--model", model, "--work", tmp_path / "work")
    running = k3.Pipeline(tmp_path / "run", dict(model=model, work=tmp_path / "work"), {})
    running.run_dir.mkdir(mode=0o700)
    (running.run_dir / "restart.json").write_text("{}")
    (running.run_dir / "supervisord.pid").mkdir()  # it runs, and cannot say as which process
    started = running.start()
    assert started.returncode == 1
    assert "could not write pidfile" in started.stderr and "exit code" not in started.stderr
    k3.wait_until(lambda: not (running.run_dir / "supervisor.sock").exists(), "the supervisor's end")
    assert k3.stage_processes() == []


def test_a_run_whose_supervisor_is_killed_says_so_and_keeps_its_tokens(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    faults, report, log, runtime = (tmp_path / name for name in ("faults", "report.json", "log", "runtime"))
    faults.write_text("delay 5 unit\n")
    runtime.mkdir()
    words = [k3.BIN / "k3", "run", "--model", model, "--work", tmp_path / "work", "--ids", "3,7", "--gen", "3000", "-v", "--json",
             report, "--trunk-gb", "0.0003", "--unit-mb", "0.05"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log.open("w"),
                               env=dict(os.environ, K3_READ_FAULTS=str(faults), XDG_RUNTIME_DIR=str(runtime)))
    k3.wait_until(lambda: k3.tokens_in(log) > 0, "the first token")
    pid_file, = runtime.glob("k3-*/supervisord.pid")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert process.wait(timeout=k3.PATIENCE_SECONDS) == 1
    assert "the pipeline's supervisor has gone" in log.read_text()
    partial = json.loads(report.read_text())
    assert partial["finish_reason"] == "error"
    assert 0 < len(partial["generated_ids"]) < 3000
    k3.wait_until(lambda: not list(runtime.iterdir()) and not k3.stage_processes(), "the end of what the run had started")


def test_a_start_that_fails_stops_what_it_started(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    running = k3.Pipeline(tmp_path / "run", dict(model=model), {})  # no index
    started = running.start()
    assert started.returncode == 2
    assert "k3 index" in started.stderr and str(running.run_dir / "log") in started.stderr
    assert k3.stage_processes() == []
    k3.k3("index", "--model", model)
    assert running.start().returncode == 0
    running.stop()


def test_a_packed_trunk_in_its_default_place_is_used(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    k3.k3("index", "--model", model)
    k3.k3("pack", "--model", model)
    running = k3.Pipeline(tmp_path / "run", dict(model=model), {})
    assert running.start().returncode == 0
    assert f"--trunk {model / '.k3'}" in (running.run_dir / "supervisord.conf").read_text()
    running.stop()
