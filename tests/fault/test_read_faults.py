"""A weight that cannot be read ends its request by name, and only its request; a shard that cannot be opened ends the start."""

import os
import signal

import pytest

import awkward_checkpoints
import k3

PROMPT = [3, 7, 11, 5, 9, 60, 41]


@pytest.fixture()
def faults(tmp_path):
    return tmp_path / "faults"


@pytest.fixture()
def running(faults, tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    with k3.pipeline(tmp_path, environment={"K3_READ_FAULTS": str(faults)}, model=model, unit_mb="0.05", trunk_gb="0.0002",
                     cache_gb="0.0002") as pipeline:
        yield pipeline


def run(running, check):
    return k3.k3("run", "--pipeline", running.run_dir, "--ids", k3.comma(PROMPT), "--gen", 4, check=check)


@pytest.mark.parametrize("fault,named", [
    ("error layer 3 expert", "layer 3 expert"),
    ("error unit 2", "unit 2"),
])
def test_unreadable_weight_fails_the_request_by_name(fault, named, running, faults):
    expected = run(running, check=True).stdout
    faults.write_text(fault + "\n")
    failed = run(running, check=False)
    assert failed.returncode == 4, failed.stderr
    assert named in failed.stderr
    assert ".safetensors" in failed.stderr
    faults.unlink()
    assert run(running, check=True).stdout == expected


@pytest.mark.parametrize("named", ["unit 3", "embedding row of token 60"])
def test_corrupted_trunk_weight_is_found_by_its_checksum(named, faults, tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    k3.k3("pack", "--model", model, "--out", tmp_path / "packed", "--unit-mb", "0.05")
    with k3.pipeline(tmp_path, environment={"K3_READ_FAULTS": str(faults)}, model=model, trunk=tmp_path / "packed",
                     trunk_gb="0.0002", cache_gb="0.0002") as pipeline:
        expected = run(pipeline, check=True).stdout
        faults.write_text(f"corrupt {named}\n")
        failed = run(pipeline, check=False)
        assert failed.returncode == 4, failed.stderr
        assert named in failed.stderr and "checksum" in failed.stderr
        faults.unlink()
        assert run(pipeline, check=True).stdout == expected


def test_corrupted_expert_is_found_by_its_checksum(faults, tmp_path):
    model, work = tmp_path / "model", tmp_path / "work"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    k3.k3("index", "--model", model, "--work", work, "--checksums")
    with k3.pipeline(tmp_path, environment={"K3_READ_FAULTS": str(faults)}, model=model, trunk_gb=1,
                     cache_gb="0.0002") as pipeline:
        expected = run(pipeline, check=True).stdout
        faults.write_text("corrupt layer 5 expert\n")
        failed = run(pipeline, check=False)
        assert failed.returncode == 4, failed.stderr
        assert "layer 5 expert" in failed.stderr and "checksum" in failed.stderr
        faults.unlink()
        assert run(pipeline, check=True).stdout == expected


@pytest.mark.parametrize("damage", ["absent", "folder", "pipe"])
def test_shard_that_is_no_file_ends_its_stages_once(damage, tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    shard = sorted(model.glob("*.safetensors"))[-1]
    with k3.pipeline(tmp_path, model=model) as running:
        shard.unlink()
        if damage == "folder":
            shard.mkdir()
        if damage == "pipe":
            os.mkfifo(shard)
        for stage in ("trunk", "experts"):
            os.kill(running.pid(stage), signal.SIGKILL)
        for stage in ("trunk", "experts"):
            failed = running.run_dir / f"{stage}.failed"
            k3.wait_until(failed.exists, f"the supervisor to give up on {stage}")
            assert failed.read_text().startswith("4\n") and shard.name in failed.read_text()
            assert running.log(stage).count("exit error=") == 1, stage
        running.stop()
        started = running.start()
        assert started.returncode == 4 and shard.name in started.stderr
