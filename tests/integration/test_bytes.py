"""Byte counts: nothing is read twice that memory holds, and prefetched is never counted as hit."""

import awkward_checkpoints
import k3

PROMPT = [3, 7, 11]


def run(model, tmp_path, *arguments):
    return k3.generate("--model", model, "--work", tmp_path / "work", "--ids", k3.comma(PROMPT), "--gen", 5,
                       "--unit-mb", "0.05", *arguments)


def test_pinned_trunk_is_read_once(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    pinned = run(model, tmp_path, "--trunk-gb", 1, "--cache-gb", 1)
    streamed = run(model, tmp_path, "--trunk-gb", 0.0002, "--cache-gb", 1)
    # Five passes (one of prefill, four of decode) over a trunk that no longer fits.
    assert streamed["bytes_read"]["trunk"] > 3 * pinned["bytes_read"]["trunk"]
    assert streamed["generated_ids"] == pinned["generated_ids"]


def test_expert_requests_add_up(tmp_path):
    model = tmp_path / "model"
    awkward_checkpoints.write_checkpoint("odd_widths", model)
    report = run(model, tmp_path, "--chunk", 1, "--cache-gb", 1)
    requests = report["expert_requests"]
    # Six MoE layers, five experts a position, seven positions (three of the prompt, four generated), one
    # position a pass.
    assert requests["hits"] + requests["prefetched"] + requests["misses"] == 6 * 5 * 7
    assert requests["prefetched"] == 0
    expert_bytes = 3 * 32 * 96 // 2 + 3 * 32 * 96 // 32
    assert report["bytes_read"]["experts"] == requests["misses"] * expert_bytes
