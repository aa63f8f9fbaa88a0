"""As much of Cap'n Proto's encoding as an experts service needs: structs, text, lists of numbers and of structs."""

import struct
from typing import NamedTuple


class Malformed(Exception):
    """The bytes are no message."""


class Struct(NamedTuple):
    """A struct to be written: whole words of numbers, then pointers (None, str, Struct, or a list of like Structs)."""

    data: bytes
    pointers: tuple = ()


def write(root):
    """A message of one segment whose root is `root`."""
    segment = bytearray(8)
    _place(segment, 0, root)
    return struct.pack("<II", 0, len(segment) // 8) + segment


def _place(segment, at, value):
    """Appends `value` and writes the pointer to it at `at`."""
    offset = (len(segment) - at - 8) // 8 << 2
    if value is None:
        return
    if isinstance(value, str):
        text = value.encode() + b"\0"
        pointer = 1 | offset | 2 << 32 | len(text) << 35
        segment += text + bytes(-len(text) % 8)
    elif isinstance(value, Struct):
        pointer = offset | _sizes(value)
        _append(segment, [value])
    else:
        sizes = _sizes(value[0]) if value else 0
        words = sum(len(it.data) // 8 + len(it.pointers) for it in value)
        pointer = 1 | offset | 7 << 32 | words << 35
        segment += struct.pack("<Q", len(value) << 2 | sizes)
        _append(segment, value)
    struct.pack_into("<Q", segment, at, pointer)


def _sizes(value):
    return len(value.data) // 8 << 32 | len(value.pointers) << 48


def _append(segment, structs):
    """Appends the structs side by side, and behind them what they point to."""
    pointers = []
    for it in structs:
        segment += it.data
        pointers += [(len(segment) + 8 * i, value) for i, value in enumerate(it.pointers)]
        segment += bytes(8 * len(it.pointers))
    for at, value in pointers:
        _place(segment, at, value)


class Reader:
    """A struct in a message received. Fields that the sender left out read as 0 or empty."""

    def __init__(self, segments, segment, at, data_words, pointer_words):
        self._segments, self._segment, self._at = segments, segment, at
        self._data_bytes, self._pointers = 8 * data_words, pointer_words

    @classmethod
    def root(cls, frame):
        """The root of a whole frame; Malformed if anything is missing or follows."""
        try:
            count = struct.unpack_from("<I", frame)[0] + 1
            sizes = struct.unpack_from(f"<{count}I", frame, 4) if 4 * count < len(frame) else None
        except struct.error:
            sizes = None
        if not sizes:
            raise Malformed("no segment table")
        at = (4 + 4 * count + 7) // 8 * 8
        if at + 8 * sum(sizes) != len(frame):
            raise Malformed(f"segments of {8 * sum(sizes)} bytes in a frame of {len(frame)}")
        segments = []
        for words in sizes:
            segments.append(frame[at:at + 8 * words])
            at += 8 * words
        return cls(segments, 0, 0, 0, 1).struct(0)

    def number(self, kind, at):
        """The number of struct format `kind` (without byte order) at byte `at` of the data."""
        if at + struct.calcsize("<" + kind) > self._data_bytes:
            return 0
        return struct.unpack_from("<" + kind, self._segments[self._segment], self._at + at)[0]

    def struct(self, index):
        segment, word, at = self._follow(index)
        if word == 0:
            return Reader(self._segments, 0, 0, 0, 0)
        if word & 3 != 0:
            raise Malformed("a pointer to something else than a struct")
        data_words, pointers = word >> 32 & 0xffff, word >> 48
        self._check(segment, at, 8 * (data_words + pointers))
        return Reader(self._segments, segment, at, data_words, pointers)

    def text(self, index):
        data = self._list(index, 2, 1)
        if data and data[-1] != 0:
            raise Malformed("a text without its end")
        try:
            return data[:-1].decode()
        except UnicodeDecodeError as error:
            raise Malformed("a text that is not UTF-8") from error

    def uint32s(self, index):
        data = self._list(index, 4, 4)
        return struct.unpack(f"<{len(data) // 4}I", data)

    def _list(self, index, size_code, element_bytes):
        segment, word, at = self._follow(index)
        if word == 0:
            return b""
        if word & 3 != 1 or word >> 32 & 7 != size_code:
            raise Malformed("a pointer to something else than the list expected")
        length = (word >> 35) * element_bytes
        self._check(segment, at, length)
        return self._segments[segment][at:at + length]

    def _follow(self, index):
        """Segment, pointer and target of a pointer; far pointers lead through one or two words elsewhere."""
        if index >= self._pointers:
            return 0, 0, 0
        segment, at = self._segment, self._at + self._data_bytes + 8 * index
        word = self._word(segment, at)
        if word & 3 == 2:
            segment, at, double = word >> 32, (word >> 3 & 0x1fffffff) * 8, word & 4
            word = self._word(segment, at)
            if double:
                tag = self._word(segment, at + 8)
                if word & 7 != 2:
                    raise Malformed("a far pointer that leads to no far pointer")
                return word >> 32, tag, (word >> 3 & 0x1fffffff) * 8
        offset = word >> 2 & 0x3fffffff
        return segment, word, at + 8 + 8 * (offset - (offset >> 29 << 30))

    def _word(self, segment, at):
        self._check(segment, at, 8)
        return struct.unpack_from("<Q", self._segments[segment], at)[0]

    def _check(self, segment, at, length):
        if segment >= len(self._segments) or at < 0 or at + length > len(self._segments[segment]):
            raise Malformed("a pointer out of bounds")
