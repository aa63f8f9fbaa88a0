"""The messages of proto/{envelope,control,experts}.capnp that an experts service sends and receives."""

import os
import struct
import time

from capnp import Reader, Struct, write

MAJOR, MINOR = 1, 0
FAILED, USAGE, WEIGHTS, INCOMPATIBLE, NO_CONNECTION = 1, 2, 4, 6, 100  # error codes
NAME = "k3-experts-python"
INCARNATION = int.from_bytes(os.urandom(8), "little") | 1

# Members of the union in Envelope, by tag.
HELLO, WELCOME, ERROR, STATS_REQUEST, STATS, STOP, SET_LOG_LEVEL = range(7)
DESCRIBE_EXPERTS, DESCRIPTION, FETCH, ARRIVED, EXPERT_FAILED, RELEASE, HINT = range(15, 22)
LAST_KNOWN = 36

HIT, PREFETCHED, MISS = range(3)  # Source


class Refused(Exception):
    """A request that cannot be carried out: error code and a sentence that names what and where."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Envelope:
    """An envelope received. Malformed if it cannot be read; Refused for another major version."""

    def __init__(self, frame):
        root = Reader.root(frame)
        version = root.number("H", 0), root.number("H", 2)
        if version[0] != MAJOR:
            raise Refused(INCOMPATIBLE, f"protocol {version[0]}.{version[1]}, {NAME} speaks {MAJOR}.{MINOR}")
        self.tag = root.number("H", 4)
        self.sequence = root.number("Q", 16)
        self.root = root

    def body(self):
        """The struct of the union's member. Malformed as all that is read from it."""
        return self.root.struct(1)


def envelope(tag, body, sequence, reply_to):
    numbers = struct.pack("<HHHxxQQQQQ", MAJOR, MINOR, tag, INCARNATION, sequence, reply_to, 0, time.monotonic_ns())
    return write(Struct(numbers, (NAME, body)))


def welcome(fingerprint):
    return WELCOME, Struct(struct.pack("<Q", os.getpid()), (NAME, fingerprint))


def _error(code, text):
    return Struct(struct.pack("<ixxxx", code), (text,))


def error(code, text):
    return ERROR, _error(code, text)


def stats(counters):
    return STATS, Struct(b"", ([Struct(struct.pack("<Q", value), (name,)) for name, value in counters.items()],))


def description(layers, experts, slots, expert_bytes):
    return DESCRIPTION, Struct(struct.pack("<IIIxxxxQQ", layers, experts, slots, expert_bytes, 0))


def arrived(batch, expert, source, references):
    """`references` are six of (region, generation, offset, length)."""
    parts = [Struct(struct.pack("<IxxxxQQQ", *reference)) for reference in references]
    return ARRIVED, Struct(struct.pack("<Q", batch), ([Struct(struct.pack("<IHxx", expert, source), (parts,))],))


def expert_failed(batch, layer, expert, text):
    return EXPERT_FAILED, Struct(struct.pack("<QII", batch, layer, expert), (_error(WEIGHTS, text),))
