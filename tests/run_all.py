"""Runs every GoogleTest binary and every pytest file of the given builds and adds up the results.

    run_all.py STEP...      each `neon` or a preset, that is a build in build/PRESET

The release build runs everything, asan-ubsan the unit and integration tests, tsan the tests that
cmake/helpers.cmake builds for it. `neon` cross compiles the kernels (preset aarch64) and runs their
tests in an emulator; it is skipped where there is no cross compiler or no emulator.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTEST_FOLDERS = {
    "release": ["tests/golden", "tests/integration", "tests/fault"],
    "asan-ubsan": ["tests/integration"],
    "tsan": [],
}
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
# Of Debian's g++-aarch64-linux-gnu and qemu-user-static.
NEON_COMPILER = "aarch64-linux-gnu-g++"
NEON_EMULATOR = "qemu-aarch64-static"
NEON_LIBRARIES = "/usr/aarch64-linux-gnu"


class Totals:
    """Counts over all runs, and the names of what did not pass."""

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, name, outcome):
        if outcome == "passed":
            self.passed += 1
        else:
            {"failed": self.failed, "skipped": self.skipped}[outcome].append(name)


def run_googletest(binary, preset, environment, totals, emulator=()):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [*emulator, str(binary), "--gtest_brief=1", f"--gtest_output=json:{report.name}"]
        code = subprocess.run(command, env=environment, check=False).returncode
        text = pathlib.Path(report.name).read_text()
    cases = [case for suite in json.loads(text)["testsuites"] for case in suite["testsuite"]] if text else []
    failures = 0
    for case in cases:
        name = f"{preset} {binary.name} {case['classname']}.{case['name']}"
        outcome = "failed" if case.get("failures") else "passed" if case["result"] == "COMPLETED" else "skipped"
        failures += outcome == "failed"
        totals.add(name, outcome)
    # A crash loses the report, and a sanitizer speaks through the exit code alone.
    if code != 0 and failures == 0:
        totals.add(f"{preset} {binary.name}: exit code {code}", "failed")
    elif not cases:
        totals.add(f"{preset} {binary.name}: ran no test", "failed")


def run_pytest(folder, preset, environment, totals):
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", folder, f"--junitxml={report.name}"]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        text = pathlib.Path(report.name).read_text()
    failures = 0
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase") if text else []:
        name = f"{preset} {case.get('classname')}.{case.get('name')}"
        bad = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
        failures += bad
        totals.add(name, outcome)
    if code != 0 and failures == 0:
        totals.add(f"{preset} {folder}: pytest exit code {code}", "failed")


def test_binaries(preset, totals):
    folder = ROOT / "build" / preset / "tests"
    binaries = sorted(p for p in folder.iterdir() if p.is_file() and os.access(p, os.X_OK))
    if not binaries:
        totals.add(f"{preset}: no test binaries", "failed")
    return binaries


def run_preset(preset, totals):
    build = ROOT / "build" / preset
    environment = dict(os.environ, K3_BIN_DIR=str(build / "bin"), PYTHONDONTWRITEBYTECODE="1")
    if preset != "release":
        environment.update(SANITIZER_OPTIONS)
    for binary in test_binaries(preset, totals):
        run_googletest(binary, preset, environment, totals)
    for folder in PYTEST_FOLDERS[preset]:
        run_pytest(folder, preset, environment, totals)


def run_neon(totals):
    missing = [tool for tool in (NEON_COMPILER, NEON_EMULATOR) if shutil.which(tool) is None]
    if missing:
        totals.add(f"neon: needs {' and '.join(missing)}", "skipped")
        return
    for command in (["cmake", "--preset", "aarch64"], ["cmake", "--build", "--preset", "aarch64"]):
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            totals.add(f"neon: {' '.join(command)}", "failed")
            return
    environment = dict(os.environ, QEMU_LD_PREFIX=NEON_LIBRARIES)
    for binary in test_binaries("aarch64", totals):
        run_googletest(binary, "neon", environment, totals, emulator=[NEON_EMULATOR])


def main():
    totals = Totals()
    for step in sys.argv[1:]:
        print(f"== {step}", flush=True)
        if step == "neon":
            run_neon(totals)
        else:
            run_preset(step, totals)
    for name in totals.skipped:
        print(f"skipped: {name}")
    for name in totals.failed:
        print(f"FAILED: {name}")
    print(f"{totals.passed} passed, {len(totals.failed)} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
