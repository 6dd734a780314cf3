"""Runs filters of system calls as the kernel does, for those that this machine cannot make."""

from __future__ import annotations

import struct

SIZE = 8


def run_filter(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """Return the answer of a filter to a system call.

    Raises:
        AssertionError: if the kernel would refuse the filter.
    """
    assert len(code) % SIZE == 0
    assert len(code) // SIZE <= 4096
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, arch, 0, *padded)
    at = accumulator = 0
    while at < len(code) // SIZE:
        kind, if_true, if_false, value = struct.unpack_from("=HBBI", code, at * SIZE)
        at += 1
        match kind:
            case 0x20:
                assert value % 4 == 0
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {kind:#x} is not used")
    raise AssertionError("the filter has no answer")
