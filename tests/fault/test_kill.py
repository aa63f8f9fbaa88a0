"""A stage ended at any moment, kill -9 or not: the same ids, exit 0, the restarts counted, nothing left behind."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

import awkward_checkpoints
import k3

PROMPT = [(7 * i + 3) % 250 for i in range(40)]
GENERATE = 32
ROUNDS = 20
READ_DELAY_MS = 4  # stretches a generation so that kills land in all of its phases
LAST_KILL_AFTER = GENERATE - 8  # tokens; the rest keep the run going until a kill has been seen


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    awkward_checkpoints.write_checkpoint("odd_widths", directory)
    return directory


@pytest.fixture(scope="module")
def slow_reads(tmp_path_factory):
    faults = tmp_path_factory.mktemp("faults") / "faults"
    faults.write_text(f"delay {READ_DELAY_MS} unit\ndelay {READ_DELAY_MS} expert\n")
    return {"K3_READ_FAULTS": str(faults)}


def start_run(running, report, log):
    words = [str(k3.BIN / "k3"), "run", "--pipeline", str(running.run_dir), "--ids", k3.comma(PROMPT), "--gen", str(GENERATE),
             "--json", str(report), "-v"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log.open("w"))


def finish(process, report, log):
    code = process.wait(timeout=k3.PATIENCE_SECONDS)
    assert code == 0, log.read_text()
    return json.loads(report.read_text())


def requests_in(running):
    """Requests that the compute worker has begun, in all of its lives."""
    return running.log("compute").count("request_started")


def kill_during(process, running, stage):
    """Ends the stage at once, while the run goes on: a run that is over would prove nothing."""
    pid = running.pid(stage)
    assert pid and process.poll() is None, stage
    os.kill(pid, signal.SIGKILL)
    k3.wait_until(lambda: running.pid(stage) != pid, f"{stage} to die")
    assert process.poll() is None, stage


def test_any_stage_killed_at_random_moments(model, slow_reads, tmp_path):
    random.seed(20)
    settings = dict(model=model, unit_mb="0.05", trunk_gb="0.0003", cache_gb="0.0002", chunk=7)
    with k3.pipeline(tmp_path, environment=slow_reads, **settings) as running:
        report, log = tmp_path / "report.json", tmp_path / "log"
        undisturbed = finish(start_run(running, report, log), report, log)
        assert undisturbed["restarts"] == 0
        for round_number in range(ROUNDS):
            victims = random.sample(k3.STAGES, random.choice([1, 1, 2]))
            victims[0] = k3.STAGES[round_number % len(k3.STAGES)]
            victims = list(dict.fromkeys(victims))
            requests = requests_in(running)
            process = start_run(running, report, log)
            # A request is made when every stage is connected; from then on each loss counts.
            k3.wait_until(lambda r=requests: requests_in(running) > r, "the generation to begin")
            # Token 0 stands for any moment of the prefill.
            moments = sorted(max(0, random.randrange(-8, LAST_KILL_AFTER)) for _ in victims)
            for stage, token in zip(victims, moments):
                k3.wait_until(lambda t=token: k3.tokens_in(log) >= t, f"token {token}")
                time.sleep(random.uniform(0, undisturbed["seconds_per_token" if token else "prefill_seconds"]))
                kill_during(process, running, stage)
            disturbed = finish(process, report, log)
            assert disturbed["generated_ids"] == undisturbed["generated_ids"], f"round {round_number}: {victims}"
            assert disturbed["restarts"] == len(victims), f"round {round_number}: {victims}"
            for stage in k3.STAGES:
                k3.wait_until(lambda s=stage: running.pid(s), f"{stage} to run again")
    assert k3.stage_processes() == []
    assert not running.run_dir.exists()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("stage", k3.STAGES)
def test_restarts_of_a_private_pipeline_are_counted(stage, ending, model, slow_reads, tmp_path):
    report, log = tmp_path / "report.json", tmp_path / "log"
    words = [str(k3.BIN / "k3"), "run", "--model", str(model), "--work", str(tmp_path / "work"), "--ids", k3.comma(PROMPT),
             "--gen", str(GENERATE), "--json", str(report), "-v", "--unit-mb", "0.05", "--trunk-gb", "0.0003", "--cache-gb",
             "0.0002", "--chunk", "7"]
    environment = dict(os.environ, **slow_reads, XDG_RUNTIME_DIR=str(tmp_path))
    calm = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)
    assert calm.returncode == 0, calm.stderr
    expected = json.loads(report.read_text())["generated_ids"]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=log.open("w"))
    k3.wait_until(lambda: k3.tokens_in(log) > 0, "the first token")
    victims = [pid for pid in k3.stage_processes() if os.readlink(f"/proc/{pid}/exe").endswith(f"k3-{stage}")]
    assert len(victims) == 1
    os.kill(victims[0], ending)
    disturbed = finish(process, report, log)
    assert disturbed["generated_ids"] == expected
    assert disturbed["restarts"] == 1
    assert k3.stage_processes() == []
    assert [p.name for p in pathlib.Path(tmp_path).iterdir() if p.name.startswith("k3")] == []


def test_killing_the_command_line_stops_its_pipeline(model, slow_reads, tmp_path):
    words = [str(k3.BIN / "k3"), "run", "--model", str(model), "--work", str(tmp_path / "work"), "--ids", k3.comma(PROMPT),
             "--gen", "2000", "-v", "--unit-mb", "0.05", "--trunk-gb", "0.0003"]
    log = tmp_path / "log"
    environment = dict(os.environ, **slow_reads, XDG_RUNTIME_DIR=str(tmp_path))
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=log.open("w"))
    k3.wait_until(lambda: k3.tokens_in(log) > 0, "the first token")
    assert len(k3.stage_processes()) == len(k3.STAGES)
    process.kill()
    process.wait()
    k3.wait_until(lambda: not k3.stage_processes(), "the stages to stop")
    k3.wait_until(lambda: not [p for p in pathlib.Path(tmp_path).iterdir() if p.name.startswith("k3")],
                  "the run directory to be removed")
