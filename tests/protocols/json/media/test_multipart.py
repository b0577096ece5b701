"""Form data: literal bytes in both directions, what other software writes and reads, and hostile bodies."""

from email import message_from_bytes
from email.policy import HTTP

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.protocols.json.media import multipart
from gateway.protocols.json.media.multipart import FormPart

TYPE = "multipart/form-data; boundary=b-1"


def read(body: bytes, content_type: str = TYPE, parts: int = 10) -> list[FormPart]:
    found = multipart.read(body, content_type, parts=parts)
    assert list(found) == [part.name for part in found.values()]
    return [FormPart(each.name, bytes(each.content), each.content_type, each.filename) for each in found.values()]


def written(*parts: FormPart) -> tuple[str, bytes]:
    pieces = multipart.write(parts)
    return multipart.content_type(pieces), b"".join(pieces)


CURL = (
    b"--------------------------8c1fb1ef9e1b3a4d\r\n"
    b'Content-Disposition: form-data; name="model"\r\n\r\n'
    b"m\r\n"
    b"--------------------------8c1fb1ef9e1b3a4d\r\n"
    b'Content-Disposition: form-data; name="image"; filename="a%22b.png"\r\n'
    b"Content-Type: image/png\r\n\r\n"
    b"\x89PNG\r\n\x1a\n\x00\r\n"
    b"--------------------------8c1fb1ef9e1b3a4d--\r\n"
)
"""`curl -F model=m -F 'image=@"a\\"b.png"'` of curl 7.88."""

PARTS = (FormPart("model", b"m"), FormPart("image", b"\x89PNG\r\n\x1a\n\x00", "image/png", 'a"b.png'))


def test_what_curl_sends_is_read() -> None:
    found = read(CURL, "multipart/form-data; boundary=------------------------8c1fb1ef9e1b3a4d")
    assert tuple(found) == PARTS


def test_the_bytes_of_form_data() -> None:
    content_type, body = written(*PARTS)
    boundary = content_type.removeprefix("multipart/form-data; boundary=").encode()
    assert len(boundary) == 32
    assert body == CURL.replace(b"------------------------8c1fb1ef9e1b3a4d", boundary)
    assert written(*PARTS) == (content_type, body)
    assert written(*PARTS[::-1])[0] != content_type
    assert tuple(read(body, content_type)) == PARTS
    assert read(written()[1], written()[0]) == []


def part(content: bytes, head: bytes = b'Content-Disposition: form-data; name="x"\r\n') -> bytes:
    return b"--b-1\r\n%b\r\n%b\r\n" % (head, content)


END = b"--b-1--\r\n"


def disposition(parameters: str) -> bytes:
    return f"Content-Disposition: form-data{parameters}\r\n".encode()


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (END, []),
        (END[:-2], []),
        (part(b"") + END, [FormPart("x", b"")]),
        (part(b"\r\n\r\n--b-\r\n --b-1") + END, [FormPart("x", b"\r\n\r\n--b-\r\n --b-1")]),
        (part(b"1\n--b-1\n2") + END, [FormPart("x", b"1\n--b-1\n2")]),
        (part(b"1", disposition("; name=x;filename=y")) + END, [FormPart("x", b"1", "", "y")]),
        (part(b"1", disposition('; NAME="x"; filename=""')) + END, [FormPart("x", b"1", "", "")]),
        (part(b"1", disposition('; name=""')) + END, [FormPart("", b"1")]),
        (part(b"1", disposition("; name=\"ä\"; filename*=utf-8''y")) + END, [FormPart("ä", b"1", "", "utf-8''y")]),
        (part(b"1", disposition('; name="a%22b%0D%0Ac%20"')) + END, [FormPart('a"b\r\nc%20', b"1")]),
        (part(b"1", b"X-Other: 1\r\ncontent-type:text/plain \r\n" + disposition('; name="x"')) + END,
         [FormPart("x", b"1", "text/plain")]),
        (part(b"1", b"Content-Transfer-Encoding: BINARY\r\n" + disposition('; name="x"')) + END, [FormPart("x", b"1")]),
    ],
)  # fmt: skip
def test_other_spellings_are_read(body: bytes, parts: list[FormPart]) -> None:
    assert read(body) == parts


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "does not begin with its boundary"),
        (b"\r\n" + part(b"1") + END, "does not begin with its boundary"),
        (b"preamble\r\n" + part(b"1") + END, "does not begin with its boundary"),
        (b"--b-2\r\n", "does not begin with its boundary"),
        (b"--b-1", "part 1 of the form data does not begin or end with a boundary on its own line"),
        (b"--b-1\r\n", "part 1 of the form data does not begin or end"),
        (b"--b-1\n" + disposition('; name="x"') + b"\r\n1\r\n" + END, "part 1 of the form data does not begin or end"),
        (b"--b-1 \r\n" + part(b"1") + END, "part 1 of the form data does not begin or end"),
        (b"--b-10\r\n" + part(b"1") + END, "part 1 of the form data does not begin or end"),
        (part(b"1"), "part 1 of the form data does not begin or end"),
        (part(b"1") + END[:-4], "part 2 of the form data does not begin or end"),
        (part(b"1\r\n--b-1x") + END, "part 2 of the form data does not begin or end"),
        (part(b"1") + END + b"x", "bytes after the end of the form data"),
        (part(b"1") + END + b"\r\n", "bytes after the end of the form data"),
        (part(b"1") + part(b"2") + END, "two parts of the form data have the name 'x'; rename one"),
        (part(b"1", b"") + END, "part 1 of the form data: Content-Disposition is ''"),
        (b"--b-1\r\nx: y\r\n" + END, "part 1 of the form data: its headers do not end"),
        (part(b"1", b"x: " + b"y" * 9000 + b"\r\n") + END, "its headers do not end within 8192 bytes"),
        (part(b"1", disposition("")) + END, 'is \'form-data\', expected form-data; name="..."'),
        (part(b"1", disposition('; filename="x"')) + END, "expected form-data; name"),
        (part(b"1", disposition('; name="x"; name="y"')) + END, "expected form-data; name"),
        (part(b"1", disposition('; name="x')) + END, "expected form-data; name"),
        (part(b"1", disposition('; name="a\\"b"')) + END, "expected form-data; name"),
        (part(b"1", b"Content-Disposition: attachment; name=x\r\n") + END, "expected form-data; name"),
        (part(b"1", disposition("x; name=x")) + END, "expected form-data; name"),
        (part(b"1", disposition("; name=x") * 2) + END, "is not a header, or occurs twice"),
        (part(b"1", b"no header\r\n") + END, "'no header\\\\r\\\\n' is not a header"),
        (part(b"1", b"x: y\r\n z\r\n" + disposition("; name=x")) + END, "' z.* is not a header"),
        (part(b"1", b"x: y\nz: 1\r\n" + disposition("; name=x")) + END, "is not a header"),
        (part(b"1", b"x: \xff\r\n" + disposition("; name=x")) + END, "its headers are not UTF-8"),
        (part(b"MQ==", b"Content-Transfer-Encoding: base64\r\n" + disposition("; name=x")) + END,
         "part 'x' of the form data is in 'base64', expected no encoding"),
    ],
)  # fmt: skip
def test_what_is_no_form_data_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(body)


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data", "multipart/form-data; boundary=", 'multipart/form-data; boundary="a "', "nonsense",
     f"multipart/form-data; boundary={'a' * 71}", 'multipart/form-data; boundary="a\tb"', ""],
)  # fmt: skip
def test_a_boundary_is_needed(content_type: str) -> None:
    with pytest.raises(DecodeError, match="expected multipart/form-data with a boundary of 1 to 70 letters"):
        read(part(b"1") + END, content_type)


def test_the_longest_boundary_is_read() -> None:
    boundary = "a b" + "'()+_,-./:=?x" * 5 + "yz"
    assert len(boundary) == 70
    body = (part(b"1") + END).replace(b"b-1", boundary.encode())
    assert read(body, f'multipart/form-data; boundary="{boundary}"') == [FormPart("x", b"1")]


def test_the_number_of_parts_is_bounded() -> None:
    body = b"".join(part(b"1", disposition(f"; name={at}")) for at in range(11)) + END
    assert len(read(body, parts=11)) == 11
    with pytest.raises(GatewayError, match=r"form data with more than 10 parts \(limits.json_values\)") as refused:
        read(body, parts=10)
    assert refused.value.reason is Reason.TOO_LARGE


def test_contents_are_not_copied() -> None:
    body = part(b"1" * 1000) + END
    content = multipart.read(body, TYPE, parts=1)["x"].content
    assert isinstance(content, memoryview)
    assert content.obj is body


def test_texts_are_utf8() -> None:
    assert FormPart("x", "ä".encode(), "text/plain; charset=UTF-8").text == "ä"
    with pytest.raises(DecodeError, match="part 'x' is not UTF-8"):
        assert FormPart("x", b"\xe4").text
    with pytest.raises(DecodeError, match="charset 'latin-1', expected utf-8"):
        assert FormPart("x", b"\xe4", "text/plain; charset=latin-1").text


names = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\%"), max_size=8)
contents = st.binary(max_size=30) | st.sampled_from([b"\r\n--b-1", b"--b-1--", b"\r\n\r\n"])


@given(st.dictionaries(names.filter(bool), contents, min_size=1, max_size=4))
def test_what_httpx_sends_is_read(files: dict[str, bytes]) -> None:
    request = httpx.Request(
        "POST", "http://h/", data={"text": "ä"}, files={f"f{name}": each for name, each in files.items()}
    )
    found = read(request.read(), request.headers["content-type"])
    assert found[0] == FormPart("text", "ä".encode())
    assert {each.name[1:]: each.content for each in found[1:]} == files
    assert all(each.filename == "upload" for each in found[1:])


@given(st.dictionaries(names, contents, max_size=4), st.sampled_from(["", "image/png", "text/plain; charset=utf-8"]))
def test_what_is_written_comes_back(given: dict[str, bytes], content_type: str) -> None:
    parts = [FormPart(name, content, content_type, name or None) for name, content in given.items()]
    header, body = written(*parts)
    assert read(body, header) == parts


def test_another_reader_reads_what_is_written() -> None:
    contents = [b"1", b"", b"\r\n--\r\n", b"\x00\xff\n", b"a\r"]
    header, body = written(*(FormPart(str(at), each, "application/x-y", "f") for at, each in enumerate(contents)))
    message = message_from_bytes(b"Content-Type: %b\r\n\r\n%b" % (header.encode(), body), policy=HTTP)
    assert not message.defects
    found = list(message.iter_parts())
    assert [each.get_param("name", header="content-disposition") for each in found] == ["0", "1", "2", "3", "4"]
    assert [each.get_payload(decode=True) for each in found] == contents


@given(
    st.lists(st.sampled_from([b"--b-1", b"\r\n", b"--", b"x: y", disposition("; name=x"), b"1", b"\n"]), max_size=12)
)
def test_any_bytes_are_form_data_or_refused(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    try:
        found = read(body)
    except DecodeError:
        return
    assert (
        body
        == b"".join(part(bytes(each.content), disposition("; name=x")) for each in found)
        + body[body.rfind(b"--b-1--") :]
    )
