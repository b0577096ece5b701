"""Takes the pictures in docs/console.md and docs/openapi.md: `make screenshots`.

A gateway with traffic on several routes and some errors is looked at in Chromium, in both themes.
"""

import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page

from tests.admin.console.browser import chromium, program
from tests.admin.console.gateways import Looked, looked

IMAGES = Path(__file__).parents[3] / "docs/images"
SIZE = (1280, 760)
COLOURS = 128
"""Of each picture: a page of a few colours needs no more, and the files are a third of the size."""

CONFIG = """
listeners:
  - name: http
    bind: "127.0.0.1:0"
    protocols: [v2-rest, v1-rest, umbridge, graphpipe]
    allow_explain: true
    reply_headers: true
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: classify}
admin: {bind: "127.0.0.1:0"}
reference:
  - {protocol: v2-rest, bind: "127.0.0.1:TENSORS", models: [double, add_sub, classify, count, identity]}
  - {protocol: umbridge, bind: "127.0.0.1:SCIENCE", models: [posterior]}
backends:
  triton: {protocol: v2-rest, endpoints: ["http://127.0.0.1:TENSORS"], policies: [{timeout: {seconds: 30}}]}
  science:
    protocol: umbridge
    endpoints: ["http://127.0.0.1:SCIENCE"]
    max_in_flight: 1
    policies: [{timeout: {seconds: 30}}]
  old-triton: {protocol: v2-rest, endpoints: ["http://127.0.0.1:NOTHING"], policies: [{timeout: {seconds: 30}}]}
routes:
  - {match: {model: posterior}, backend: science}
  - {match: {model: "legacy-*"}, backend: old-triton}
  - {match: {protocol: umbridge, model: double}, backend: triton}
  - {match: {model: "team-*"}, backend: triton, rewrite: {model: "{1}"}, fallback: [old-triton]}
  - {match: {model: "*"}, backend: triton}
"""
POINT = b'{"inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1, 1]}]}'
PICTURES = {
    "overview": "#/overview",
    "errors": "#/errors",
    "requests": "#/requests",
    "models": "#/models?backend=triton&model=add_sub&version=1",
    "playground": "#/playground?model=posterior&protocol=umbridge",
    "explain": "#/playground?model=team-double&protocol=umbridge",
}
THEMES = ("light", "dark")


def send(gateway: Looked, ends: threading.Event) -> None:
    """Requests of several kinds, until `ends` is set or enough are sent."""
    for turn in range(4000):
        gateway.infer("double")
        gateway.infer("team-double")
        if turn % 3 == 0:
            gateway.infer("posterior", POINT)
        if turn % 40 == 0:
            gateway.infer("legacy-double")
        if turn % 60 == 0:
            gateway.infer("dubble")
        if turn % 50 == 0:
            gateway.infer("double", b'{"inputs": []}')
        if ends.wait(0.02):
            return


def play(page: Page, name: str) -> None:
    """Send the request that the playground proposes; for the picture `explain` its way is shown."""
    page.locator("fieldset").first.wait_for()
    page.wait_for_function("() => !document.body.textContent.includes('Querying')")
    if name == "explain" and not page.get_by_label("Name", exact=True).count():
        page.get_by_role("button", name="range").first.click()
    elif name == "explain":
        page.get_by_label("Name", exact=True).fill("x")
        page.get_by_label("Values").fill("1, 2, 3")
    page.get_by_role("button", name="Send").click()
    page.locator(".outcome").wait_for()
    if name == "explain":
        page.get_by_role("tab", name="Explain").click()


def take(page: Page, gateway: Looked) -> None:
    for name, fragment in PICTURES.items():
        page.goto(f"{gateway.admin}/console/{fragment}")
        page.reload()
        if "playground" in fragment:
            play(page, name)
        else:
            page.locator("main tbody tr, main .node").first.wait_for()
        page.wait_for_function("() => !document.body.textContent.includes('Querying')")
        if name == "overview":
            page.wait_for_function(
                "() => document.querySelector('.spark path').getAttribute('d').split('L').length > 5"
            )
        for theme in THEMES:
            page.emulate_media(color_scheme="light" if theme == "light" else "dark")
            file = IMAGES / f"console-{name}-{theme}.png"
            save(page, file)
    take_document(page, gateway)


def take_document(page: Page, gateway: Looked) -> None:
    """The picture of the API documentation: a path for one model."""
    page.emulate_media(color_scheme="light")
    page.goto(f"{gateway.admin}/docs?listener=http&model=add_sub")
    path = page.locator("#operations-v1-rest-post_v1_models_model_predict")
    path.get_by_role("button").first.click()
    path.get_by_text("Example Value").first.wait_for()
    path.evaluate("found => found.scrollIntoView()")
    save(page, IMAGES / "openapi-model.png")


def save(page: Page, file: Path) -> None:
    page.screenshot(path=file)
    with Image.open(file) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.relative_to(Path.cwd())}: {file.stat().st_size // 1024} KiB")


def main() -> int:
    """Take the pictures. 1 if there is no Chromium."""
    if not program():
        print("there is no Chromium here; `make peers` installs it as root on Debian", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    ends = threading.Event()
    with TemporaryDirectory() as folder, looked(Path(folder), CONFIG) as gateway:
        sending = threading.Thread(target=send, args=(gateway, ends))
        sending.start()
        try:
            with chromium() as browser:
                take(browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, timezone_id="UTC"), gateway)
        finally:
            ends.set()
            sending.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
