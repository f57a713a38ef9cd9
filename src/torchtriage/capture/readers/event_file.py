"""Reads the scalars of a TensorBoard event file, without tensorboard.

A file is a row of records: length, checksum of the length, content, checksum of the content. The content is a
protocol buffer `Event` with a step and a summary of tagged values.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAX_RECORD = 16 << 20       # bytes; a scalar has some 50, an image a few MB
_HEAD = struct.Struct("<QI")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
FLOAT_TENSOR = 1            # DT_FLOAT of TensorFlow, whose scalars are tensors


class Scalar(NamedTuple):
    name: str
    step: int
    value: float


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C as the format masks it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_event_file(head: bytes) -> bool:
    """Whether a file begins with the checked length of a record."""
    if len(head) < _HEAD.size:
        return False
    length, crc = _HEAD.unpack_from(head)
    return bool(length <= MAX_RECORD) and masked_crc(head[:8]) == crc


def scalars(file: BinaryIO) -> Iterator[Scalar]:
    """The scalars in the order of the file, up to a damaged record or the end."""
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        length, crc = _HEAD.unpack(head)
        if length > MAX_RECORD or masked_crc(head[:8]) != crc:
            return
        content = file.read(length)
        if len(content) < length or len(file.read(4)) < 4:
            return
        yield from _event(content)


def _event(content: bytes) -> Iterator[Scalar]:
    step, summaries = 0, []
    for number, kind, value in _fields(content):
        if number == 2 and kind == _VARINT and isinstance(value, int):
            step = value if value < 1 << 63 else 0
        elif number == 5 and kind == _BYTES and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, kind, value in _fields(summary):
            if number == 1 and kind == _BYTES and isinstance(value, bytes):
                yield from _value(value, step)


def _value(content: bytes, step: int) -> Iterator[Scalar]:
    name, number_found = "", None
    for number, kind, value in _fields(content):
        if number == 1 and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif number == 2 and kind == _FIXED32 and isinstance(value, bytes):
            number_found = struct.unpack("<f", value)[0]
        elif number == 8 and isinstance(value, bytes):
            number_found = _tensor(value)
    if name and number_found is not None:
        yield Scalar(name, step, float(number_found))


def _tensor(content: bytes) -> float | None:
    """The number of a float tensor with one element."""
    is_float, data = False, b""
    for number, kind, value in _fields(content):
        if number == 1 and kind == _VARINT:
            is_float = value == FLOAT_TENSOR
        elif number in (4, 5) and isinstance(value, bytes):
            data = value
    return struct.unpack("<f", data)[0] if is_float and len(data) == 4 else None


def _fields(content: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, kind, value) of the fields of a message, up to one that is damaged."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        number, kind = key >> 3, key & 7
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _VARINT:
            value, at = _varint(content, at)
            if at <= end:
                yield number, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(content, at)
        if size is None or at + size > end:
            return
        yield number, kind, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """(the number, the place after it); a place beyond the end if it is cut off."""
    result = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, at
        shift += 7
    return 0, len(content) + 1
