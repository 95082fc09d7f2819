"""What is sent to open pages."""

import zlib

from springtide.dashboard.live import HEADER, pack


def test_packed_pieces_make_one_stream_whatever_came_before() -> None:
    pieces = {text: pack(text) for text in (b"hello\n", b"page " * 1000, b"beat\n")}
    for order in ([0, 1, 2], [2, 1], [1, 1, 0]):
        texts = [list(pieces)[k] for k in order]
        reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        assert reader.decompress(HEADER) == b""
        assert [reader.decompress(pieces[text]) for text in texts] == texts  # each is there as soon as it has come
