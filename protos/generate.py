"""Writes what is derived from the schemas: `make generate`.

The `.proto` files of `protos/NAME/` become `gateway/protocols/NAME/descriptors.binpb`, a FileDescriptorSet, from which
the codec makes its messages at import. No `*_pb2` modules: those of one protobuf version do not import on an older one.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

SCHEMAS = Path(__file__).parent
PROTOCOLS = SCHEMAS.parent / "gateway" / "protocols"


def descriptors(name: str) -> bytes:
    """The FileDescriptorSet of `protos/NAME/*.proto`, imports included. Raises ValueError where protoc refuses them."""
    files = sorted(f"{name}/{path.name}" for path in (SCHEMAS / name).glob("*.proto"))
    with TemporaryDirectory() as folder:
        target = Path(folder) / "descriptors.binpb"
        options = ["protoc", f"--proto_path={SCHEMAS}", "--include_imports", f"--descriptor_set_out={target}"]
        if protoc.main([*options, *files]):
            raise ValueError(f"protoc refuses {', '.join(files)}")
        return target.read_bytes()


def generated() -> dict[Path, bytes]:
    """Every derived file and what belongs in it."""
    names = sorted({path.parent.name for path in SCHEMAS.glob("*/*.proto")})
    return {PROTOCOLS / name / "descriptors.binpb": descriptors(name) for name in names}


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_bytes(content)
