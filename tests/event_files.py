"""Writes records of TensorBoard event files, for tests of their reader."""

import struct
from collections.abc import Mapping

from torchtriage.capture.readers.event_file import masked_crc


def event_record(step: int, values: Mapping[str, float], *, as_tensor: bool = False) -> bytes:
    """One event with a summary of these values."""
    summary = b"".join(_bytes_field(1, _value(name, value, as_tensor)) for name, value in values.items())
    return framed(_varint_field(2, step) + _bytes_field(5, summary))


def framed(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def _value(name: str, value: float, as_tensor: bool) -> bytes:
    tag = _bytes_field(1, name.encode())
    number = struct.pack("<f", value)
    if as_tensor:
        return tag + _bytes_field(8, _varint_field(1, 1) + _bytes_field(4, number))
    return tag + bytes([2 << 3 | 5]) + number


def _varint_field(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _varint(value)


def _bytes_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])
