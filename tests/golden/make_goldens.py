"""Writes tests/golden/cases/CASE.json for every awkward checkpoint, from the numpy reference alone."""

import hashlib
import json
import pathlib
import tempfile

import awkward_checkpoints
import k3_reference

PROMPT = [3, 7, 11, 5, 9, 60, 41]
NEW_TOKENS = 24
CASES = pathlib.Path(__file__).parent / "cases"


def digest(directory):
    """SHA-256 over all files of a checkpoint in name order."""
    sha = hashlib.sha256()
    for path in sorted(pathlib.Path(directory).iterdir()):
        sha.update(path.name.encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def golden(case):
    with tempfile.TemporaryDirectory() as directory:
        awkward_checkpoints.write_checkpoint(case, directory)
        model = k3_reference.Model(directory)
        ids, logits, margin = k3_reference.generate(model, PROMPT, NEW_TOKENS)
        return {
            "checkpoint_sha256": digest(directory),
            "mla_norm_eps": 1e-6,
            "prompt_ids": PROMPT,
            "generated_ids": ids,
            "smallest_margin": margin,
            "largest_logit": float(abs(logits).max()),
            "last_logits": [round(float(x), 9) for x in logits[-1]],
        }


if __name__ == "__main__":
    CASES.mkdir(exist_ok=True)
    for name in awkward_checkpoints.SHAPES:
        result = golden(name)
        print(name, "margin", result["smallest_margin"], "largest", result["largest_logit"], result["generated_ids"])
        (CASES / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
