"""Frames of a real client and a real server (brpc 1.17.0), and frames written by hand."""

from struct import pack

REQUEST = bytes.fromhex(
    "50525043 00000061 00000039 0a29"
    "0a1e 677270732e70726f746f732e76312e477270734272706353657276696365 1207 50726564696374 1800"
    "20 8280808060 5000 5800 6200"
    "120b 74776963652d312e302e30 2a19 0a17 0a0178 1007 1a020103 520c 0000803f 00000040 00004040"
)
REPLY = bytes.fromhex(
    "50525043 00000038 00000012 1202 0800 1800 20 8280808060 5000 5800 6200 0a09 08c801 1202 4f4b 1801"
    "2a19 0a17 0a0178 1007 1a020103 520c 00000040 00008040 0000c040"
)
"""Model `twice-1.0.0` doubles `x`, FP32 [1, 3] = 1, 2, 3."""

NUMBER = 25769803778
"""Their correlation id: brpc's have a version in them."""

META, PAYLOAD = REQUEST[12 : 12 + 0x39], REQUEST[12 + 0x39 :]
REPLY_META, REPLY_PAYLOAD = REPLY[12 : 12 + 0x12], REPLY[12 + 0x12 :]

# What brpc 1.6.0, which grps builds on, does not write: content_type, checksum_type, checksum_value.
OF_1_17 = bytes.fromhex("5000 5800 6200")
META_1_6 = META.removesuffix(OF_1_17)
REPLY_META_1_6 = REPLY_META.removesuffix(OF_1_17)


def joined(meta: bytes, payload: bytes = b"", magic: bytes = b"PRPC") -> bytes:
    """A frame."""
    return magic + pack("!II", len(meta) + len(payload), len(meta)) + meta + payload
