"""The command line as a user meets it: refusals that name the value, outputs, exit codes."""

import json
import math
import os
import pathlib
import shlex
import signal
import subprocess

import pytest

import awkward_checkpoints
import k3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    awkward_checkpoints.write_checkpoint("odd_widths", directory)
    return directory


@pytest.mark.parametrize("arguments,named", [
    (["--ids", "abc", "--gen", "1"], "abc"),
    (["--ids", "1,,2", "--gen", "1"], "1,,2"),
    (["--ids", "-3", "--gen", "1"], "-3"),
    (["--ids", "259", "--gen", "1"], "259"),
    (["--ids", "1", "--gen", "0"], "0"),
    (["--ids", "1", "--gen", "1", "--layers", "0"], "0"),
    (["--ids", "1", "--gen", "1", "--layers", "8"], "8"),
    (["--ids", "1", "--gen", "1", "--trunk-gb", "-1"], "-1"),
    (["--ids", "1", "--gen", "1", "--cache-gb", "-2"], "-2"),
    (["--ids", "1", "--gen", "1", "--threads", "0"], "0"),
    (["--ids", "1", "--gen", "1", "--isa", "neon9"], "neon9"),
    (["--gen", "1"], "--ids"),
    (["--ids", "1", "--prompt", "x", "--gen", "1"], "--prompt"),
])
def test_bad_flags_are_usage_errors_that_name_the_value(arguments, named, model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path, *arguments, check=False)
    assert result.returncode == 2, result.stderr
    assert named in result.stderr
    assert k3.stage_processes() == []


def test_more_than_the_memory_is_refused_with_plan_and_limit(model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "1", "--gen", "1", "--trunk-gb", "100000", "--cache-gb",
                   "100000", check=False)
    # Budgets are capped at what the model has, so an absurd one is simply everything: it must fit here.
    assert result.returncode == 0, result.stderr


def test_text_needs_a_vocabulary(model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--prompt", "hello", "--gen", "1", check=False)
    assert result.returncode == 2
    assert "vocabulary" in result.stderr


def test_ids_are_printed_without_a_vocabulary(model, tmp_path):
    report = tmp_path / "report.json"
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "3,7,11", "--gen", "4", "--json", report)
    assert [int(word) for word in result.stdout.split()] == json.loads(report.read_text())["generated_ids"]


def test_report_has_every_field_and_is_strict_json(model, tmp_path):
    def refuse(constant):
        raise ValueError(constant)

    path = tmp_path / "report.json"
    k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "3,7,11", "--gen", "4", "--json", path)
    report = json.loads(path.read_text(), parse_constant=refuse)
    assert report["prompt_ids"] == [3, 7, 11]
    assert len(report["generated_ids"]) == 4
    assert report["text"] is None
    assert report["prefill_seconds"] > 0 and report["seconds_per_token"] > 0
    assert report["bytes_read"]["trunk"] > 0 and report["bytes_read"]["experts"] > 0
    assert set(report["expert_requests"]) == {"hits", "prefetched", "misses"}
    assert report["restarts"] == 0
    assert math.isfinite(report["peak_memory_bytes"]) and report["peak_memory_bytes"] > 1e6


def test_unwritable_report_is_exit_3_with_the_results_on_the_terminal(model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "3,7,11", "--gen", "2", "--json", "/dev/full",
                   check=False)
    assert result.returncode == 3
    assert len(result.stdout.split()) == 2
    assert "/dev/full" in result.stderr


@pytest.mark.parametrize("flag", ["--json", "--dump-logits"])
@pytest.mark.parametrize("place", ["absent/file", "."])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(flag, place, model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path / "work", "--ids", "3", "--gen", "2", flag, tmp_path / place,
                   check=False)
    assert result.returncode == 3
    assert flag in result.stderr and str(tmp_path / place) in result.stderr
    assert result.stdout == "" and not (tmp_path / "work").exists()


def run_in_shell(line, **paths):
    """`line` as a user types it, with {k3} and {paths} filled in; what it left running is none of the result."""
    quoted = {name: shlex.quote(str(path)) for name, path in paths.items()}
    return subprocess.run(["bash", "-c", line.format(k3=shlex.quote(str(k3.BIN / "k3")), **quoted)], capture_output=True,
                          text=True, timeout=k3.PATIENCE_SECONDS, check=False)


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_stdout_that_cannot_be_written_ends_the_run(redirection, model, tmp_path):
    report = tmp_path / "report.json"
    result = run_in_shell("{k3} run --model {model} --work {work} --ids 3,7 --gen 300 --json {report} " + redirection,
                          model=model, work=tmp_path / "work", report=report)
    assert result.returncode == 3, result.stderr
    assert "stdout" in result.stderr
    assert len(json.loads(report.read_text())["generated_ids"]) == 1
    assert k3.stage_processes() == []


def test_a_reader_that_leaves_ends_the_run(model, tmp_path):
    result = run_in_shell("{k3} run --model {model} --work {work} --ids 3,7 --gen 3000 | head -c 1; exit ${{PIPESTATUS[0]}}",
                          model=model, work=tmp_path / "work")
    assert result.returncode == 3, result.stderr
    assert "Broken pipe" in result.stderr
    assert k3.stage_processes() == []


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-"])
def test_stderr_that_cannot_be_written_changes_nothing(redirection, model, tmp_path):
    line = "{k3} run --model {model} --work {work} --ids 3,7 --gen 4 -v "
    paths = {"model": model, "work": tmp_path / "work"}
    expected = run_in_shell(line, **paths)
    result = run_in_shell(line + redirection, **paths)
    assert (result.returncode, result.stdout) == (0, expected.stdout)
    failed = run_in_shell("{k3} run --model {model} --ids x --gen 4 " + redirection, **paths)
    assert failed.returncode == 2


def test_every_command_notices_a_full_stdout(model):
    for command in ("census", "verify"):
        result = run_in_shell("{k3} " + command + " --model {model} > /dev/full", model=model)
        assert result.returncode == 3, command
        assert "stdout" in result.stderr


def test_a_report_pipe_nobody_reads_is_an_error_not_a_wait(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = k3.k3("run", "--model", model, "--work", tmp_path / "work", "--ids", "3", "--gen", "2", "--json", tmp_path / "pipe",
                   check=False)
    assert result.returncode == 3
    assert "nobody reads" in result.stderr


def test_a_prompt_comes_from_a_pipe(tmp_path):
    direct = k3.k3("run", "--model", k3.DEMO, "--work", tmp_path, "--prompt", "A dog is", "--gen", "3").stdout
    piped = run_in_shell("printf 'A dog is' | {k3} run --model {model} --work {work} --prompt-file /dev/stdin --gen 3",
                         model=k3.DEMO, work=tmp_path)
    assert piped.stdout == direct


def test_stop_id_ends_the_generation(model, tmp_path):
    free = k3.generate("--model", model, "--work", tmp_path, "--ids", "3,7,11", "--gen", "8")
    stop = free["generated_ids"][3]
    stopped = k3.generate("--model", model, "--work", tmp_path, "--ids", "3,7,11", "--gen", "8", "--stop-id", stop)
    assert stopped["generated_ids"] == free["generated_ids"][:free["generated_ids"].index(stop) + 1]
    assert stopped["finish_reason"] == "stop"


def test_partial_layers_say_that_it_is_not_the_model(model, tmp_path):
    result = k3.k3("run", "--model", model, "--work", tmp_path, "--ids", "3", "--gen", "1", "--layers", "2")
    assert "2 of 7 layers" in result.stderr


def test_interrupt_stops_early_with_a_report(model, tmp_path):
    faults = tmp_path / "faults"
    faults.write_text("delay 5 unit\n")
    report, log = tmp_path / "report.json", tmp_path / "log"
    words = [str(k3.BIN / "k3"), "run", "--model", str(model), "--work", str(tmp_path / "work"), "--ids", "3,7", "--gen", "3000",
             "-v", "--json", str(report), "--trunk-gb", "0.0003", "--unit-mb", "0.05"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log.open("w"),
                               env=dict(os.environ, K3_READ_FAULTS=str(faults)))
    k3.wait_until(lambda: k3.tokens_in(log) > 0, "the first token")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=k3.PATIENCE_SECONDS) == 5
    stopped = json.loads(report.read_text())
    assert stopped["finish_reason"] == "cancelled"
    assert 0 < len(stopped["generated_ids"]) < 3000
    assert k3.stage_processes() == []


def test_a_stale_index_is_refused(model, tmp_path):
    other = tmp_path / "other"
    awkward_checkpoints.write_checkpoint("two_dense", other)
    k3.k3("index", "--model", other, "--work", tmp_path / "work")
    result = k3.k3("run", "--model", model, "--work", tmp_path / "work", "--ids", "3", "--gen", "1", check=False)
    assert result.returncode == 4
    assert "experts.k3x" in result.stderr


def test_a_stale_packed_trunk_is_refused(model, tmp_path):
    other = tmp_path / "other"
    awkward_checkpoints.write_checkpoint("two_dense", other)
    k3.k3("pack", "--model", other, "--out", tmp_path / "packed")
    result = k3.k3("run", "--model", model, "--work", tmp_path / "work", "--trunk", tmp_path / "packed", "--ids", "3", "--gen",
                   "1", check=False)
    assert result.returncode == 4
    assert "trunk.k3t" in result.stderr


def test_a_flipped_weight_is_another_revision(model, tmp_path):
    copy = tmp_path / "copy"
    awkward_checkpoints.write_checkpoint("odd_widths", copy)
    k3.k3("index", "--model", copy, "--work", tmp_path / "work")
    shard = sorted(copy.glob("*.safetensors"))[0]
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    result = k3.k3("run", "--model", copy, "--work", tmp_path / "work", "--ids", "3", "--gen", "1", check=False)
    assert result.returncode == 4


def test_read_only_model_directory_asks_for_work(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("all_kda", model)
    (model / ".k3").write_text("a file where the folder would go")  # works for root too
    refused = k3.k3("run", "--model", model, "--ids", "3", "--gen", "1", check=False)
    assert refused.returncode == 3
    assert "--work" in refused.stderr
    k3.generate("--model", model, "--work", tmp_path / "work", "--ids", "3", "--gen", "1")


def test_compare_logits_finds_one_bit(model, tmp_path):
    a, b = tmp_path / "a.f32", tmp_path / "b.f32"
    k3.generate("--model", model, "--work", tmp_path, "--ids", "3,7,11", "--gen", "2", "--dump-logits", a)
    raw = bytearray(a.read_bytes())
    assert k3.k3("compare-logits", a, a, check=False).returncode == 0
    raw[100] ^= 1
    b.write_bytes(raw)
    assert k3.k3("compare-logits", a, b, check=False).returncode == 1
    b.write_bytes(raw[:-4])
    shorter = k3.k3("compare-logits", a, b, check=False)
    assert shorter.returncode == 1 and str(len(raw)) in shorter.stderr + shorter.stdout


def test_census_counts_the_demo_model(tmp_path):
    census = json.loads(k3.k3("census", "--model", k3.DEMO, "--json").stdout)
    total = sum(entry["parameters"] for entry in census["classes"].values())
    assert total == census["total"]["parameters"]
    assert 9.0e6 < total < 10.0e6  # its README says 9.5 million


def test_verify_passes_the_demo_and_finds_damage(tmp_path):
    assert "ok" in k3.k3("verify", "--model", k3.DEMO, "--work", tmp_path, "--full").stdout.lower()
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("two_dense", model)
    shard = sorted(model.glob("*.safetensors"))[1]
    os.truncate(shard, shard.stat().st_size - 1)
    damaged = k3.k3("verify", "--model", model, check=False)
    assert damaged.returncode == 4
    assert shard.name in damaged.stderr + damaged.stdout


def test_make_checkpoint_runs(tmp_path):
    model = tmp_path / "model"
    k3.k3("make-checkpoint", "--out", model, "--shape", "tiny", "--seed", "7")
    first = k3.generate("--model", model, "--ids", "1,2,3", "--gen", "3")["generated_ids"]
    k3.k3("make-checkpoint", "--out", tmp_path / "again", "--shape", "tiny", "--seed", "7", "--scatter")
    assert (pathlib.Path(model) / "config.json").read_bytes() == (tmp_path / "again" / "config.json").read_bytes()
    assert len(first) == 3


@pytest.mark.parametrize("command", [["status"], ["run", "--ids", "3", "--gen", "1"], ["control", "stop"]])
def test_a_folder_without_a_pipeline_is_refused_at_once(command, tmp_path):
    result = k3.k3(command[0], "--pipeline", tmp_path, *command[1:], check=False)
    assert result.returncode == 2
    assert f"no pipeline in {tmp_path}" in result.stderr


def test_status_of_a_pipeline_that_is_down(tmp_path):
    (tmp_path / "restart.json").write_text("{}")
    result = k3.k3("status", "--pipeline", tmp_path, check=False)
    assert result.returncode == 1
    for stage in k3.STAGES:
        assert stage in result.stdout + result.stderr


def test_control_sets_the_log_level_and_stops_a_stage(tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        k3.k3("control", "--pipeline", running.run_dir, "log-level", "debug")
        before = running.pid("trunk")
        stopped = k3.k3("control", "--pipeline", running.run_dir, "--stage", "trunk", "stop")
        assert stopped.stdout.split() == ["trunk", "stopped"]
        assert "stop_requested" in running.log("trunk")
        k3.wait_until(lambda: running.pid("trunk") not in (None, before), "the supervisor's restart")


def test_a_standing_pipeline_of_some_layers_finds_their_index(model, tmp_path):
    k3.k3("index", "--model", model, "--layers", "2", "--work", tmp_path / "work")
    with k3.pipeline(tmp_path, model=model, layers=2) as it:
        assert "2 of 7 layers" in k3.k3("run", "--pipeline", it.run_dir, "--ids", "3", "--gen", "1").stderr


def test_verify_looks_where_pack_and_index_of_some_layers_wrote(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    k3.k3("index", "--model", model, "--layers", "3", "--checksums")
    k3.k3("pack", "--model", model, "--layers", "3")
    found = k3.k3("verify", "--model", model, "--layers", "3", "--full").stdout
    for built in ("experts.k3x", "trunk.k3t"):
        assert f"layers-3/{built} is sound" in found


def test_another_model_is_refused_by_a_running_pipeline(model, tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        result = k3.k3("run", "--pipeline", running.run_dir, "--model", model, "--ids", "3", "--gen", "1", check=False)
        assert result.returncode == 6, result.stderr


def test_prompts_longer_than_the_context_of_a_running_pipeline_name_both_numbers(tmp_path):
    with k3.pipeline(tmp_path, model=k3.DEMO) as running:
        result = k3.k3("run", "--pipeline", running.run_dir, "--ids", k3.comma([65] * 4000), "--gen", "200", check=False)
    assert result.returncode == 2, result.stderr
    assert "4200" in result.stderr or "4000" in result.stderr
    assert "4096" in result.stderr
