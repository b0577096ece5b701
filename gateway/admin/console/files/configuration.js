// The configuration in use, with the warnings of `gateway check` next to their lines.

import { change, read, to } from "./address.js";
import { ask } from "./api.js";
import { html, setText } from "./dom.js";
import { count } from "./format.js";
import { reloading } from "./reload.js";

const SHOWN = 1000; // lines; more are shown on demand
const MOST_LISTED = 100; // warnings above the lines

export function show(root, { attempt }) {
  let found = { lines: [], marks: [], failure: null };
  let seen = null;
  let limit = SHOWN;
  const failure = html("section", { class: "panel failure", "aria-label": "The last reload failed", hidden: true });
  const warnings = html("section", { class: "panel", "aria-label": "Warnings", hidden: true });
  const lines = html("ol", { class: "lines" });
  const told = html("span", { class: "muted", role: "status" });
  const more = html("button", { type: "button", hidden: true, click: () => {
    limit *= 8;
    draw();
  } }, "Show more");
  const filter = html("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter lines", spellcheck: "false",
    autocomplete: "off", value: read().parameters.get("filter") ?? "",
    input: () => {
      change({ filter: filter.value });
      limit = SHOWN;
      draw();
    },
  });
  root.append(
    html("h1", {}, "Configuration"),
    html("p", { class: "muted" }, "The configuration in use, with all defaults. Secrets are shown as ***, and values from files and variables as references."),
    reloading(attempt),
    failure,
    warnings,
    html("div", { class: "controls" }, filter, told),
    html("div", { class: "scroll code", role: "region", "aria-label": "Configuration", tabindex: "0" }, lines),
    more,
  );

  function draw() {
    const marks = new Map();
    for (const mark of found.marks) marks.set(mark.line, [...(marks.get(mark.line) ?? []), mark]);
    const shown = matching(found.lines, filter.value.trim().toLowerCase());
    const line = Number(read().parameters.get("line") ?? 0) - 1;
    lines.replaceChildren(...shown.slice(0, Math.max(limit, line + 1)).map((at) => item(found.lines[at], at, marks.get(at) ?? [], at === line)));
    more.hidden = shown.length <= limit;
    setText(told, shown.length === found.lines.length ? `${count(shown.length)} lines` : `${count(shown.length)} of ${count(found.lines.length)} lines`);
    drawFailure();
    drawWarnings();
  }

  function drawFailure() {
    failure.hidden = !found.failure;
    if (!found.failure) return;
    failure.replaceChildren(
      html("h2", {}, html("span", { class: "badge down" }, "reload failed"), " The file has errors, so the previous configuration is still in use"),
      html("ul", {}, ...found.failure.errors.map((each) => problem(each.line, each))),
    );
  }

  function drawWarnings() {
    const listed = found.marks.filter((each) => each.kind === "warning");
    warnings.hidden = !listed.length;
    const title = listed.length === 1 ? "1 warning" : `${count(listed.length)} warnings`;
    warnings.replaceChildren(
      html("h2", {}, html("span", { class: "badge degraded" }, title), " of gateway check"),
      html("ul", {}, ...listed.slice(0, MOST_LISTED).map((mark) => problem(mark.line, mark))),
      listed.length > MOST_LISTED && html("p", { class: "muted" }, `${count(listed.length - MOST_LISTED)} more are shown next to their lines.`) || "",
    );
  }

  function jump() {
    filter.value = read().parameters.get("filter") ?? "";
    draw();
    const here = lines.querySelector(".here");
    here?.scrollIntoView({ block: "center" });
    return here;
  }

  async function update({ traffic }) {
    if (traffic.now.topology === seen) return;
    seen = traffic.now.topology;
    const reply = await attempt(() => ask("configuration"));
    if (!reply) {
      seen = null;
      return;
    }
    found = reply.value;
    jump();
  }

  return { update, moved: () => jump()?.focus({ preventScroll: true }) };
}

/** The indexes of the lines with this text, each with the indexes of its parent lines. */
function matching(lines, text) {
  const all = lines.map((_, at) => at);
  if (!text) return all;
  const found = new Set();
  const above = []; // pairs of indentation and index
  for (const at of all) {
    const line = lines[at];
    const indent = line.search(/[^ ]/);
    const item = line.startsWith("-", indent) ? indent + 0.5 : indent;
    while (above.length && above[above.length - 1][0] >= item) above.pop();
    above.push([item, at]);
    if (line.toLowerCase().includes(text)) for (const [, each] of above) found.add(each);
  }
  return all.filter((at) => found.has(at));
}

const WORDS = { warning: "warning", error: "error in the new file, which is not in use" };

/** The position in the file, for the end of a message. */
const where = ({ place }) => (place ? html("code", { class: "place" }, place) : "");

/** Scroll to the line again if the address already points to it, because the address does not change in this case. */
function again(event) {
  if (event.currentTarget.hash === location.hash) dispatchEvent(new HashChangeEvent("hashchange"));
}

/** A problem in the list above the lines, with a link to its line if it has one. */
function problem(line, each) {
  return html("li", {}, line === null ? "" : [html("a", { href: to("configuration", { line: line + 1 }), click: again }, `line ${line + 1}`), ": "], each.text, where(each));
}

function item(text, at, marks, isHere) {
  const name = [marks.length ? "marked" : "", marks.some((mark) => mark.kind === "error") ? "wrong" : "", isHere ? "here" : ""].filter(Boolean).join(" ");
  return html(
    "li",
    { value: at + 1, class: name || undefined, tabindex: isHere ? "-1" : undefined },
    html("span", { class: "number", "aria-hidden": "true" }, String(at + 1)),
    ...yaml(text),
    ...marks.map((mark) => html("span", { class: `mark ${mark.kind}` }, html("strong", {}, `${WORDS[mark.kind]}: `), mark.text, where(mark))),
  );
}

/** A line, with separate elements for its key and its value. */
function yaml(text) {
  const parts = /^(\s*(?:- )*)([^\s:'"][^:]*)(:)(\s.*|$)/.exec(text);
  if (!parts) return [html("span", {}, text)];
  return [parts[1], html("span", { class: "name" }, parts[2]), parts[3], html("span", { class: "given" }, parts[4])];
}
