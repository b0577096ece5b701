"""Writes what is derived from the schemas: `make generate`.

The `.proto` files below `protos/NAME/` become a FileDescriptorSet, `descriptors.binpb`, in the folder that uses them,
from which it makes its messages at import. No `*_pb2` modules: those of one protobuf version do not import on an older
one.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import grpc_tools
from grpc_tools import protoc

SCHEMAS = Path(__file__).parent
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"
"""Protobuf's own schemas, `google/protobuf/any.proto` and others."""
GATEWAY = SCHEMAS.parent / "gateway"
ELSEWHERE = {
    "grpc": GATEWAY / "transports" / "grpc",
    "keda": GATEWAY / "admin" / "scaler",
    "v2": GATEWAY / "protocols" / "v2" / "grpc",
}
"""The folders of schemas that are not read in `gateway/protocols/NAME`."""


def descriptors(name: str) -> bytes:
    """The FileDescriptorSet of the files below `protos/NAME`, imports included. Raises ValueError where protoc refuses
    them."""
    files = sorted(path.relative_to(SCHEMAS).as_posix() for path in (SCHEMAS / name).rglob("*.proto"))
    with TemporaryDirectory() as folder:
        target = Path(folder) / "descriptors.binpb"
        places = [f"--proto_path={each}" for each in (SCHEMAS, WELL_KNOWN)]
        options = ["protoc", *places, "--include_imports", f"--descriptor_set_out={target}"]
        if protoc.main([*options, *files]):
            raise ValueError(f"protoc refuses {', '.join(files)}")
        return target.read_bytes()


def generated() -> dict[Path, bytes]:
    """Every derived file and what belongs in it."""
    names = sorted({path.relative_to(SCHEMAS).parts[0] for path in SCHEMAS.rglob("*.proto")})
    return {_folder(name) / "descriptors.binpb": descriptors(name) for name in names}


def _folder(name: str) -> Path:
    return ELSEWHERE.get(name, GATEWAY / "protocols" / name)


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_bytes(content)
