"""Replies that come from a web server or a proxy instead of a model server: error pages, redirects, and errors without
a message.

The bodies of these replies do not help clients, and do not identify the server. `exchange.ask` reports the replies with
the backend's name and address, followed by a message from this module.
"""

import html
import re
from urllib.parse import urljoin, urlsplit, urlunsplit

from gateway.core.errors import readable
from gateway.core.messages import Message

_LONGEST = 200
"""Maximum length of a title or an address in an error message, in characters."""
_LONGEST_TITLE = 1000
"""Maximum size of a title with its tags, in bytes."""
_MOST_READ = 16 * 2**10
"""Number of bytes at the start of a page in which to search for a title."""
_TITLES = (b"title", b"h1")
"""The elements that can contain a page's title, in order of preference."""
_TAG = re.compile(r"<[^>]*>")
_PAGES = (b"<!doctype html", b"<html")

REDIRECTS = "; it redirects to "
"""The start of the part of an error message that can contain hosts that are not in the configuration."""


def is_called_html(reply: Message) -> bool:
    """Return whether the reply's media type is HTML."""
    return reply.headers.get("content-type").lower().startswith("text/html")


def _is_page(reply: Message) -> bool:
    """Return whether the body is HTML. The media type does not prove this, because some frameworks label every text as
    HTML."""
    beginning = bytes(memoryview(reply.body)[:64]).lstrip().lower()
    return beginning.startswith(_PAGES) or (beginning.startswith(b"<") and is_called_html(reply))


def page_text(reply: Message) -> str:
    """Return a description of a page by its title, for example `a web page (text/html), '500 Internal Server Error'`.

    The rest of the page is omitted, because it can be long, and can reveal the server's paths and variables."""
    page = bytes(memoryview(reply.body)[:_MOST_READ])
    found = next(filter(None, (_element(page, name) for name in _TITLES)), b"").decode("utf-8", "replace")
    title = " ".join(readable(html.unescape(_TAG.sub(" ", found))).split())
    return f"a web page (text/html), {title[:_LONGEST]!r}" if title else "a web page (text/html)"


def _element(page: bytes, name: bytes) -> bytes:
    """Return the content of the first element `name`, or empty bytes.

    For any content, the time is linear in the size of the page. By contrast, a regular expression would start again at
    each `<`."""
    lower = page.lower()
    start = lower.find(b"<" + name)
    begin = lower.find(b">", start) if start >= 0 else -1
    end = lower.find(b"</" + name, begin) if begin >= 0 else -1
    return page[begin + 1 : min(end, begin + 1 + _LONGEST_TITLE)] if end >= 0 else b""


def web_error(reply: Message, asked: str) -> str:
    """Return the error message for a reply to a request for the path `asked`, if the reply is a redirect or an error
    page.

    Return an empty string for all other replies, which codecs decode."""
    if 300 <= reply.status < 400:
        return f"status {reply.status}, expected 200{_redirect(reply, asked)}"
    if reply.status >= 400 and _is_page(reply):
        return f"status {reply.status} with {page_text(reply)}"
    return ""


def _redirect(reply: Message, asked: str) -> str:
    """Return the part of the message that describes a redirect: its target, and the path to configure instead of
    `asked`."""
    location = readable(reply.headers.get("location")).replace("\n", " ").strip()[:_LONGEST]
    if not location:
        return ""
    try:
        parts = urlsplit(urljoin(asked, location))
    except ValueError:
        return f"{REDIRECTS}{location!r}"
    host = parts.netloc.rpartition("@")[2]
    shown = f"{REDIRECTS}{urlunsplit((parts.scheme, host, *parts[2:]))!r}, which is not followed"
    if parts.path != asked:
        return f"{shown}; write the path {parts.path} where the configuration has {asked}, in the form or the address"
    return f"{shown}; write the address {parts.scheme}://{host} in the backend's endpoints" if host else shown
