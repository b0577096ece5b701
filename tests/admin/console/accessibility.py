"""Faults of a page for people who use a keyboard, a screen reader or a phone, or who see little."""

from collections.abc import Iterable
from importlib.resources import files

from playwright.sync_api import Page

AXE = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")

BROKEN_RULES = """async () => {
  // experimental in axe-core, so not among those that it checks by itself
  const rules = {"label-content-name-mismatch": {enabled: true}};
  const { violations } = await axe.run(document, {rules, resultTypes: ["violations"]});
  return violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html}: ${node.failureSummary}`));
}"""

POOR_CONTRASTS = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const part = [r, g, b].map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const ground = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const color = numbers(getComputedStyle(each).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("svg text")) {
    if (!node.textContent.trim() || !node.checkVisibility()) continue;
    const pair = [numbers(getComputedStyle(node).fill), ground(node)].map(luminance);
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) poor.push(`${node.textContent}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
"""Texts in drawings, which axe-core leaves out, whose contrast is lower than WCAG 2.2 wants (1.4.3, AA): 4.5 to 1."""

OPPOSITES = (("light", 1280), ("dark", 390))
LOOKS = (*OPPOSITES, ("dark", 1280), ("light", 390))
"""Themes, and widths in pixels: those of a screen and of a phone. OPPOSITES have each theme and each width once."""


def faults(page: Page) -> list[str]:
    """The rules of axe-core that the page breaks, and the texts that are hard to read."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    found: list[str] = page.evaluate(BROKEN_RULES) + page.evaluate(POOR_CONTRASTS)
    return found


def faults_in(page: Page, looks: Iterable[tuple[str, int]]) -> list[str]:
    """The faults in these themes and widths, among them that the page is wider than the screen. Afterwards the page is
    as it was."""
    before = page.viewport_size
    assert before is not None
    found = []
    for theme, width in looks:
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 900})
        found += [f"{theme}, {width} pixels: {each}" for each in faults(page)]
        needed = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{theme}: {needed} pixels wide instead of {width}"] * (needed > width)
    page.set_viewport_size(before)
    page.emulate_media(color_scheme="light")
    return found


def faults_in_every_look(page: Page) -> list[str]:
    return faults_in(page, LOOKS)
