"""Where a copy's source and target lie in a device's memory, as far as a process can choose.

On H200s the same copy of 4 GiB is a tenth slower in some places than in others, and stays so while
its buffers stay. No call says which places are fast, so several are tried: other buffers, which are
other pages of the memory, and other distances between the two.
"""

import msgspec

_MOST_BUFFERS = 4
# One H200 copied slowly with up to 4 MiB between the two, and fast from 16 MiB on.
_FURTHER_BYTES = 16 << 20
# A quarter of the smallest size that is copied is as large as a piece of random numbers.
_FURTHER_SHARE = 4


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a copy.

    Attributes:
        source, target: numbers of two buffers.
        begin: of the target within its buffer, in bytes; the source begins where its buffer does.
    """

    source: int
    target: int
    begin: int


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The places to try.

    Attributes:
        buffers: how many are needed.
        buffer_bytes: of each.
        tried: in this order, the most different first.
    """

    buffers: int
    buffer_bytes: int
    tried: tuple[Place, ...]


def places_for(size: int, room_bytes: int, most: int) -> Places:
    """Return the places to try: each buffer is copied to the next one, the last to the first.

    Args:
        size: of a copy, in bytes, of which two fit into the room.
        room_bytes: that all buffers together may take; two are taken in any case, a quarter larger
            than the copy at most.
        most: places.
    """
    if most == 1:
        return Places(buffers=2, buffer_bytes=size, tried=(Place(source=0, target=1, begin=0),))
    further = min(_FURTHER_BYTES, size // _FURTHER_SHARE)
    buffers = max(2, min(_MOST_BUFFERS, room_bytes // (size + further)))
    tried = (
        Place(source=source, target=(source + 1) % buffers, begin=begin)
        for begin in (0, further)
        for source in range(buffers)
    )
    return Places(buffers=buffers, buffer_bytes=size + further, tried=tuple(tried)[:most])
