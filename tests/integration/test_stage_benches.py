"""The stages measured alone: what their reports count is exact; times are only there."""

import json
import subprocess

import k3


def bench(service, *arguments, json_file, check=True):
    command = [str(word) for word in (k3.BIN / service, *arguments, "--json", json_file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=k3.PATIENCE_SECONDS, check=False)
    if not check:
        return result
    assert result.returncode == 0, result.stderr
    return result, json.loads(json_file.read_text())


def test_the_tokenizer_counts_the_ids_of_the_text(tmp_path):
    text, out = tmp_path / "text", tmp_path / "out.json"
    text.write_bytes(bytes([0x07] * 7))  # controls: no token of the demo vocabulary joins two of them
    result, report = bench("k3-tokenizer", "--model", k3.DEMO, "--bench", text, "--repeat", 3, json_file=out)
    assert report["file"] == str(text) and report["repeat"] == 3
    assert report["encode"]["bytes"] == report["decode"]["bytes"] == 7
    assert report["encode"]["tokens"] == report["decode"]["tokens"] == 7
    for part in ("encode", "decode"):
        seconds = report[part]["seconds"]
        assert len(seconds) == 3 and min(seconds) > 0
        assert report[part]["median_seconds"] == sorted(seconds)[1]
    assert "tokens/s" in result.stdout.splitlines()[0] and len(result.stdout.splitlines()) == 3


def test_the_tokenizer_needs_a_run_directory_or_a_file_to_measure(tmp_path):
    without = subprocess.run([k3.BIN / "k3-tokenizer", "--model", k3.DEMO], capture_output=True, text=True, check=False)
    assert without.returncode == 2 and "--run is required" in without.stderr
    (tmp_path / "empty").touch()
    empty = bench("k3-tokenizer", "--model", k3.DEMO, "--bench", tmp_path / "empty", json_file=tmp_path / "o", check=False)
    assert empty.returncode == 2 and "empty" in empty.stderr
