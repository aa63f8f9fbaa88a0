"""Writes pretokenizer_cases.json: random texts and how the K3 pattern cuts them.

The judge is the pattern itself, run by the PyPI module `regex` (needed only here):

    python3 make_pretokenizer_cases.py COUNT SEED > pretokenizer_cases.json
"""

import json
import random
import sys

import regex

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = regex.compile(
    "|".join(
        [
            r"[\p{Han}]+",
            rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    regex.V1,
)

# Characters whose neighbours matter, then blocks to draw single ones from; all in Unicode 16.0.
PLAIN = list("aAzZ09 .,'\"(-_") + ["  ", "\t", "\n", "\r", "\r\n", "\u0085", "\u00a0", "\u3000", "\x1c", "\u200b"]
WORDS = ["'s", "'S", "'ll", "'RE", "'ve", "'d", "'\u017f", "\u2019s", "HELLO", "World", "ABCdef", "1234567", "don't"]
SCRIPTS = ["\u4f60\u597d", "\u3005", "\u3007", "\u2e80", "\u3006", "\u30fc", "\U00016fe2", "\U00016ff0", "\u0301", "\u093f",
           "\u0e17\u0e35\u0e48", "\u01c5", "\u02b0", "\u2160", "\u00b2", "\U0001f600", "\u200d", "\ufe0f", "\U0002ebf0", "\ufffd"]
BLOCKS = [(0x20, 0x7E), (0xA0, 0x52F), (0x531, 0x58F), (0x5D0, 0x5EA), (0x904, 0x939), (0xE01, 0xE3A), (0x1E00, 0x1EFF),
          (0x2010, 0x2027), (0x2150, 0x218B), (0x2E80, 0x2E99), (0x3041, 0x3096), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
          (0x1D400, 0x1D454), (0x1F600, 0x1F64F), (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0x10D40, 0x10D65)]


def random_text(draw):
    text = ""
    for _ in range(draw.randint(1, 12)):
        kind = draw.random()
        if kind < 0.45:
            part = draw.choice(PLAIN)
        elif kind < 0.65:
            part = draw.choice(WORDS)
        elif kind < 0.85:
            part = draw.choice(SCRIPTS)
        else:
            part = chr(draw.randint(*draw.choice(BLOCKS)))
        text += part * draw.choice([1, 1, 1, 2, 3])
    return text


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    cases = [[match.group() for match in PATTERN.finditer(random_text(draw))] for _ in range(count)]
    print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")


if __name__ == "__main__":
    main()
