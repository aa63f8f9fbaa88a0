"""k3 conform: passes what keeps the contract of the experts service, and names the one clause that is broken."""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import threading

import pytest

import k3

BROKEN_EXPERTS = k3.BIN.parent / "fixtures" / "broken_experts"
SLOTS = 24  # fewer than a layer has experts, so that demands can be too large
EXPERT_BYTES = 14720  # of the demo model, in a slot
CLAUSES = [f"E{number}" for number in range(1, 32)]

BREAKS = {
    "wrong-bytes": "E12",
    "lease-ignored": "E22",
    "stale-generation": "E14",
    "reply-for-other-batch": "E17",
    "silent-drop": "E15",
    "duplicate-arrival": "E16",
    "overlong-region": "E3",
    "missing-error": "E19",
    "wrong-fingerprint": "E5",
    "leak-after-death": "E26",
}


class Kept:
    """A service that is started again whenever it dies, as under a supervisor."""

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self.stopping = False
        self.process = self.start()
        self.keeper = threading.Thread(target=self.keep)
        self.keeper.start()

    def start(self):
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def keep(self):
        while True:
            self.process.wait()
            if self.stopping:
                return
            self.process = self.start()

    def stop(self):
        self.stopping = True
        while self.keeper.is_alive():  # it may be starting the next one just now
            self.process.kill()
            self.keeper.join(0.1)


@contextlib.contextmanager
def kept_service(*command):
    """The run directory of a service that serves until the end."""
    with tempfile.TemporaryDirectory(prefix="k3-conform-") as directory:
        run_dir = pathlib.Path(directory) / "run"
        service = Kept([*command, "--run", run_dir, "--log-level", "error"])
        try:
            k3.wait_until((run_dir / "experts.life").exists, "the service to listen")
            yield run_dir
        finally:
            service.stop()


def conform(run_dir, *arguments, model=k3.DEMO):
    """Exit code, outcome by clause, details by clause, and what was printed."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.json"
        result = k3.k3("conform", run_dir, "--model", model, "--json", report, *arguments, check=False)
        assert report.exists(), result.stderr
        clauses = json.loads(report.read_text())["clauses"]
    assert [clause["id"] for clause in clauses] == CLAUSES
    outcomes = {clause["id"]: clause["outcome"] for clause in clauses}
    details = {clause["id"]: clause["detail"] for clause in clauses}
    return result, outcomes, details


def restart(run_dir):
    return ["--restart-command", f"kill -9 $(cat {run_dir}/experts.lock)"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    k3.k3("index", "--model", k3.DEMO, "--work", folder)
    return folder


@contextlib.contextmanager
def k3_experts(work, slots):
    with kept_service(k3.BIN / "k3-experts", "--model", k3.DEMO, "--work", work, "--cache-gb",
                      slots * EXPERT_BYTES / 1e9) as run_dir:
        yield run_dir


def test_k3_experts_keeps_every_clause(work):
    with k3_experts(work, SLOTS) as run_dir:
        result, outcomes, _ = conform(run_dir, "--fetches", "5000", *restart(run_dir))
    assert result.returncode == 0, result.stdout
    assert set(outcomes.values()) == {"passed"}
    lines = result.stdout.splitlines()
    assert len(lines) == len(CLAUSES) + 1
    assert lines[-1] == "31 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("slots,skipped", [
    (1, {"E25", "E31"}),  # one lease at a time
    (2, {"E31"}),
    (192, {"E20", "E23", "E31"}),  # everything fits
])
def test_k3_experts_with_few_and_with_all_slots(work, slots, skipped):
    with k3_experts(work, slots) as run_dir:
        result, outcomes, details = conform(run_dir, "--fetches", "300")
    assert result.returncode == 0, result.stdout
    assert {clause for clause, outcome in outcomes.items() if outcome == "skipped"} == skipped
    assert details["E31"] == "needs --restart-command"


def test_the_page_cache_service_keeps_every_clause():
    with kept_service(k3.BIN / "k3-experts-pagecache", "--model", k3.DEMO) as run_dir:
        result, outcomes, _ = conform(run_dir, "--fetches", "5000", *restart(run_dir))
    assert result.returncode == 0, result.stdout
    # It has a slot for every expert.
    assert {clause for clause, outcome in outcomes.items() if outcome == "skipped"} == {"E20", "E23"}


def test_the_python_example_keeps_every_clause():
    with kept_service(k3.PYTHON_EXPERTS, "--model", k3.DEMO) as run_dir:
        result, outcomes, _ = conform(run_dir, "--fetches", "5000", *restart(run_dir))
    assert result.returncode == 0, result.stdout
    assert {clause for clause, outcome in outcomes.items() if outcome == "skipped"} == {"E20", "E23"}


def test_the_fixture_keeps_every_clause():
    with kept_service(BROKEN_EXPERTS, "--model", k3.DEMO, "--slots", SLOTS) as run_dir:
        result, outcomes, _ = conform(run_dir, "--fetches", "1000", *restart(run_dir))
    assert result.returncode == 0, result.stdout
    assert set(outcomes.values()) == {"passed"}


@pytest.mark.parametrize("name,clause", BREAKS.items())
def test_a_broken_service_fails_the_clause_it_breaks_and_no_other(name, clause):
    with kept_service(BROKEN_EXPERTS, "--model", k3.DEMO, "--slots", SLOTS, "--break", name) as run_dir:
        result, outcomes, details = conform(run_dir, "--fetches", "300", "--limit-seconds", "3", *restart(run_dir))
    assert [it for it, outcome in outcomes.items() if outcome != "passed"] == [clause], result.stdout
    assert outcomes[clause] == "FAILED" and details[clause]
    assert result.returncode == 1
    assert "1 of 31 clauses failed" in result.stderr


def test_a_restart_command_that_does_not_restart_is_found():
    with kept_service(BROKEN_EXPERTS, "--model", k3.DEMO, "--slots", SLOTS) as run_dir:
        for command in ("true", "exit 7"):
            result, outcomes, _ = conform(run_dir, "--fetches", "1", "--limit-seconds", "1", "--restart-command", command)
            assert result.returncode == 1
            assert [it for it, outcome in outcomes.items() if outcome == "FAILED"] == ["E31"], result.stdout


def test_no_service_is_an_error_that_names_the_endpoint(tmp_path):
    result = k3.k3("conform", tmp_path, "--model", k3.DEMO, check=False)
    assert result.returncode == 1
    assert str(tmp_path / "experts.life") in result.stderr


def test_a_service_of_another_model_is_incompatible(tmp_path):
    other = tmp_path / "model"
    k3.k3("make-checkpoint", "--out", other, "--seed", "5")
    with kept_service(BROKEN_EXPERTS, "--model", k3.DEMO) as run_dir:
        result = k3.k3("conform", run_dir, "--model", other, check=False)
    assert result.returncode == 6
