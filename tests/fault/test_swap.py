"""The experts service exchanged for another one in the middle of a generation: the same ids."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time

import pytest

import awkward_checkpoints
import k3

SEED = 31
ROUNDS = 20
PROMPT = [(7 * i + 3) % 250 for i in range(12)]
GENERATE = 24
UNIT_DELAY_MS = 2  # stretches a generation, whichever experts service it uses
LAST_SWAP_AFTER = GENERATE - 8  # tokens; the rest keep the run going until the other service serves


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    awkward_checkpoints.write_checkpoint("odd_widths", directory)
    return directory


class Stages:
    """The four stages without a supervisor, so that the test alone decides who serves the experts."""

    def __init__(self, run_dir, model, work, environment):
        self.run_dir, self.environment = run_dir, environment
        common = ["--run", run_dir, "--log-level", "info"]
        experts = [*common, "--model", model, "--work", work, "--cache-gb", "0.0002"]
        self.services = {
            "standard": [k3.BIN / "k3-experts", *experts],
            "pagecache": [k3.BIN / "k3-experts-pagecache", *experts],
            "python": [k3.PYTHON_EXPERTS, *experts],
        }
        self.log = {name: run_dir.parent / f"{name}.log" for name in self.services}
        for log in self.log.values():
            log.touch()
        self.others = [
            self.start([k3.BIN / "k3-tokenizer", *common, "--model", model]),
            self.start([k3.BIN / "k3-trunk", *common, "--model", model, "--unit-mb", "0.05", "--trunk-gb", "0.0003"]),
        ]
        self.serving, self.experts = None, None
        self.serve("standard")
        self.others.append(self.start([k3.BIN / "k3-compute", *common, "--threads", "1", "--chunk", "7"]))
        for stage in k3.STAGES:
            k3.wait_until((run_dir / f"{stage}.life").exists, f"{stage} to listen")

    def start(self, words, log=subprocess.DEVNULL):
        return subprocess.Popen([str(word) for word in words], env=self.environment, stdout=subprocess.DEVNULL, stderr=log)

    def serve(self, name):
        with self.log[name].open("a") as log:
            self.experts = self.start(self.services[name], log)
        self.serving = name

    def swap(self, name, ending):
        self.experts.send_signal(ending)
        self.experts.wait(timeout=k3.PATIENCE_SECONDS)
        self.serve(name)

    def greeted(self, name):
        """Clients that said hello to this service, in all of its lives."""
        return self.log[name].read_text().count("client_up")

    def stop(self):
        for process in [*self.others, self.experts]:
            process.kill()
            process.wait()


@contextlib.contextmanager
def stages(tmp_path, model):
    work, faults, run_dir = tmp_path / "work", tmp_path / "faults", tmp_path / "run"
    k3.k3("index", "--model", model, "--work", work)
    faults.write_text(f"delay {UNIT_DELAY_MS} unit\n")
    it = Stages(run_dir, model, work, dict(os.environ, K3_READ_FAULTS=str(faults), K3_BIN_DIR=str(k3.BIN)))
    try:
        yield it
    finally:
        it.stop()


def start_run(running, report, log):
    words = [str(k3.BIN / "k3"), "run", "--pipeline", str(running.run_dir), "--ids", k3.comma(PROMPT), "--gen", str(GENERATE),
             "--json", str(report), "-v"]
    with log.open("w") as stderr:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=stderr)


def finish(process, report, log):
    assert process.wait(timeout=k3.PATIENCE_SECONDS) == 0, log.read_text()
    return json.loads(report.read_text())


def test_the_experts_service_is_exchanged_twenty_times(model, tmp_path):
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    report, log = tmp_path / "report.json", tmp_path / "log"
    landed = 0
    with stages(tmp_path, model) as running:
        undisturbed = finish(start_run(running, report, log), report, log)
        pairs = set()
        for round_number in range(ROUNDS):
            names = sorted(set(running.services) - {running.serving})
            before, name = running.serving, chance.choice(names)
            token = chance.randrange(1, LAST_SWAP_AFTER)
            ending = chance.choice([signal.SIGKILL, signal.SIGTERM])
            greeted = running.greeted(name)
            process = start_run(running, report, log)
            k3.wait_until(lambda t=token: k3.tokens_in(log) >= t, f"token {token}")
            time.sleep(chance.uniform(0, undisturbed["seconds_per_token"]))
            at = k3.tokens_in(log)
            running.swap(name, ending)
            disturbed = finish(process, report, log)
            what = f"round {round_number}: {before} to {name} ({ending.name}) after {at} of {GENERATE} tokens"
            print(what)
            assert disturbed["generated_ids"] == undisturbed["generated_ids"], what
            # Tokens were left when it was stopped, and the run's client then spoke to the other one.
            landed += at < GENERATE and disturbed["restarts"] == 1 and running.greeted(name) > greeted
            pairs.add((before, name))
    assert landed == ROUNDS
    assert len(pairs) == 6, f"every service in place of every other, but only {sorted(pairs)}"
