"""What the Python tests share: running the real binaries, standing pipelines, checkpoints."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("K3_BIN_DIR", ROOT / "build" / "release" / "bin"))
DEMO = ROOT / "launch" / "demo-model"
SUPERVISOR = ROOT / "launch" / "k3-pipeline"
PYTHON_EXPERTS = ROOT / "docs" / "examples" / "experts_python" / "k3-experts-python"
STAGES = ("tokenizer", "trunk", "experts", "compute")
PATIENCE_SECONDS = 120  # a hang is a failure, slowness is not


def reference_dir():
    """The third-party reference data, or a skip by name (a failure with REQUIRE_REFERENCE=1)."""
    folder = os.environ.get("K3_REFERENCE_DIR")
    if folder:
        return pathlib.Path(folder)
    if os.environ.get("REQUIRE_REFERENCE") == "1":
        pytest.fail("REQUIRE_REFERENCE=1 but K3_REFERENCE_DIR names no folder")
    pytest.skip("needs K3_REFERENCE_DIR")


def k3(*arguments, check=True, environment=None):
    """Runs `k3 ARGUMENTS`; with `check` a non-zero exit fails the test with everything it printed."""
    command = [str(BIN / "k3"), *(str(a) for a in arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
                            env=dict(os.environ, **(environment or {})))
    if check and result.returncode != 0:
        pytest.fail(f"{' '.join(command)}\nexit {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


def generate(*arguments, environment=None):
    """`k3 run ARGUMENTS --json`: the parsed report."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.json"
        k3("run", *arguments, "--json", report, environment=environment)
        return json.loads(report.read_text())


def comma(ids):
    return ",".join(str(i) for i in ids)


def tokens_in(log):
    """Tokens that a run with -v has told so far, from the file its stderr goes to."""
    return sum(line.startswith("token ") for line in log.read_text().splitlines())


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {PATIENCE_SECONDS} s for {what}")
        time.sleep(0.01)


class Pipeline:
    """A standing pipeline in its own run directory."""

    def __init__(self, run_dir, settings, environment):
        self.run_dir = run_dir
        self.settings = settings
        self.environment = dict(os.environ, **environment)

    def start(self, wait=True):
        words = [str(SUPERVISOR), "start", "--run", str(self.run_dir), "--bin", str(BIN)]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return subprocess.run(words + ["--wait"] * wait, env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS, check=False)

    def stop(self):
        subprocess.run([str(SUPERVISOR), "stop", "--run", str(self.run_dir)], capture_output=True,
                       timeout=PATIENCE_SECONDS, check=False)

    def pid(self, stage):
        """The pid of the running stage, or None while it is down."""
        try:
            pid = int((self.run_dir / f"{stage}.lock").read_text())
            os.kill(pid, 0)
            return pid
        except (OSError, ValueError):
            return None

    def log(self, stage):
        return (self.run_dir / "log" / f"{stage}.log").read_text(errors="replace")


@contextlib.contextmanager
def pipeline(directory, environment=None, **settings):
    """A running pipeline over `settings` (model=..., trunk_gb=..., ...); stopped at the end."""
    work = pathlib.Path(directory) / "work"
    if not work.exists():
        k3("index", "--model", settings["model"], "--work", work)
    with tempfile.TemporaryDirectory(prefix="k3-test-") as short:
        it = Pipeline(pathlib.Path(short) / "run", dict(settings, work=work), environment or {})
        started = it.start()
        try:
            assert started.returncode == 0, started.stderr
            yield it
        finally:
            it.stop()


def stage_processes():
    """Pids of all stage processes of these binaries."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            program = os.readlink(entry / "exe") if entry.name.isdigit() else ""
        except OSError:
            continue
        if program.startswith(str(BIN) + "/k3-"):
            found.append(int(entry.name))
    return found
