"""Which id Flink gives each operator of a plan: state is handed over by these ids alone.

An operator with a uid of its own keeps its id whatever else the job does. Every other id is made
from the operator's place: how many operators were numbered before it, how many are chained to it,
and the ids of its inputs. A source has no inputs, so two sources that stand at the same place in
the old and the new job get each other's state, whatever they read.

Followed step by step here: ``StreamGraphHasherV2`` of Flink 1.20 and 2.0, compared with the ids of
running jobs on both.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_64_BITS = (1 << 64) - 1


@dataclass(frozen=True)
class Place:
    """What an operator's id follows from.

    ``inputs`` are the numbers of the operators before it; ``forwards`` those of them that hand
    rows over without a shuffle. ``starts_chain``: it is never chained to what comes before it.
    """

    number: int
    parallelism: int
    inputs: tuple[int, ...] = ()
    forwards: frozenset[int] = frozenset()
    uid: str | None = None
    starts_chain: bool = False


def operator_id(uid: str) -> str:
    """The id (32 hexadecimal digits) of an operator that has a uid."""
    return murmur3_128(uid.encode()).hex()


def operator_ids(places: Sequence[Place]) -> dict[int, str]:
    """The ids (32 hexadecimal digits) of all operators of one job, by their numbers."""
    by_number = {place.number: place for place in places}
    outputs: dict[int, list[Place]] = {place.number: [] for place in places}
    for place in sorted(places, key=lambda place: place.number):
        for number in place.inputs:
            outputs[number].append(place)
    hashes: dict[int, bytes] = {}
    waiting = deque(sorted(place.number for place in places if not place.inputs))
    met = set(waiting)
    while waiting:
        place = by_number[waiting.popleft()]
        if place.uid is not None:
            hashes[place.number] = murmur3_128(place.uid.encode())
        elif all(number in hashes for number in place.inputs):
            hashes[place.number] = _by_place(place, outputs[place.number], hashes)
        else:
            met.discard(place.number)  # its last input brings it back
            continue
        for output in outputs[place.number]:
            if output.number not in met:
                met.add(output.number)
                waiting.append(output.number)
    return {number: made.hex() for number, made in hashes.items()}


def _by_place(place: Place, outputs: Sequence[Place], hashes: Mapping[int, bytes]) -> bytes:
    position = struct.pack("<i", len(hashes))
    chained = sum(_is_chained(place, output) for output in outputs)
    made = bytearray(murmur3_128(position * (1 + chained)))
    for number in place.inputs:
        for index, byte in enumerate(hashes[number]):
            made[index] = (made[index] * 37 ^ byte) & 0xFF
    return bytes(made)


def _is_chained(place: Place, output: Place) -> bool:
    return (
        place.number in output.forwards
        and len(output.inputs) == 1
        and output.parallelism == place.parallelism
        and not output.starts_chain
    )


def murmur3_128(data: bytes) -> bytes:
    """MurmurHash3 (x64, 128 bits, seed 0), as Guava gives it: by Austin Appleby, public domain."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        h1 ^= _times(_rotated(_times(k1, c1), 31), c2)
        h1 = (_times((_rotated(h1, 27) + h2) & _64_BITS, 5) + 0x52DCE729) & _64_BITS
        h2 ^= _times(_rotated(_times(k2, c2), 33), c1)
        h2 = (_times((_rotated(h2, 31) + h1) & _64_BITS, 5) + 0x38495AB5) & _64_BITS
    tail = data[whole:]
    if len(tail) > 8:
        k2 = int.from_bytes(tail[8:], "little")
        h2 ^= _times(_rotated(_times(k2, c2), 33), c1)
    if tail:
        k1 = int.from_bytes(tail[:8], "little")
        h1 ^= _times(_rotated(_times(k1, c1), 31), c2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _64_BITS
    h2 = (h2 + h1) & _64_BITS
    h1, h2 = _finished(h1), _finished(h2)
    h1 = (h1 + h2) & _64_BITS
    h2 = (h2 + h1) & _64_BITS
    return struct.pack("<QQ", h1, h2)


def _times(a: int, b: int) -> int:
    return a * b & _64_BITS


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _64_BITS


def _finished(value: int) -> int:
    value = _times(value ^ value >> 33, 0xFF51AFD7ED558CCD)
    value = _times(value ^ value >> 33, 0xC4CEB9FE1A85EC53)
    return value ^ value >> 33
