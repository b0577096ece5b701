// The last requests that ended with an error, by reason, with an explanation of each reason.

import { change, read, to } from "./address.js";
import { ask } from "./api.js";
import { csvButton } from "./csv.js";
import { html, setText, withCode } from "./dom.js";
import { NONE, count, dateTime, time } from "./format.js";
import { plainTable } from "./table.js";

const FIELDS = [
  ["Time", (each) => html("time", { datetime: each.at, title: dateTime(each.at) }, time(each.at))],
  ["Status", (each) => each.status],
  ["Listener", (each) => each.listener || "a step of a graph"],
  ["Operation", (each) => each.operation || NONE],
  ["Model", (each) => each.model || NONE],
  ["Route", (each) => linked("route", each.route)],
  ["Backend", (each) => linked("backend", each.backend)],
  ["Endpoint", (each) => each.endpoint || NONE],
  ["Endpoint's last error", (each) => each.last_error || NONE, "wide"],
  ["Request id", (each) => html("a", { href: to("requests", { id: each.request_id, request: each.request_id }) }, html("code", {}, each.request_id))],
];

const SAVED = ["at", "request_id", "status", "reason", "listener", "operation", "model", "route", "backend", "endpoint", "last_error"];

const linked = (kind, name) => (name ? html("a", { href: to("overview", { at: `${kind}:${name}` }) }, name) : NONE);

export function show(root, { attempt }) {
  let seen = null;
  let found = { errors: [], reasons: {} };
  const told = html("span", { class: "muted", role: "status" });
  const list = html("div");
  const filter = html("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter errors", spellcheck: "false",
    autocomplete: "off", value: read().parameters.get("filter") ?? "",
    input: () => {
      change({ filter: filter.value });
      draw();
    },
  });
  root.append(
    html("h1", {}, "Errors"),
    html("p", { class: "muted" }, "The last requests that ended with an error. Error messages are not stored, because they can contain request data. For more details, search the log for the request id."),
    html("div", { class: "controls" }, filter, csvButton("errors", "errors", () => [SAVED, ...matching().map((each) => SAVED.map((name) => each[name]))]), told),
    list,
  );

  function matching() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return found.errors.filter((each) => {
      const text = Object.values(each).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  function draw() {
    const shown = matching();
    setText(told, shown.length === found.errors.length ? count(shown.length) : `${shown.length} of ${found.errors.length}`);
    const reasons = new Map();
    for (const each of shown) reasons.set(each.reason, [...(reasons.get(each.reason) ?? []), each]);
    list.replaceChildren(...[...reasons].map(([reason, errors]) => group(reason, errors, found.reasons[reason], found.errors.length)));
    if (!shown.length) {
      list.append(html("p", { class: "muted" }, found.errors.length ? "Nothing matches the filter." : "No request has failed since the start."));
    }
  }

  async function update({ traffic }) {
    if (traffic.now.errors === seen) return;
    seen = traffic.now.errors;
    const reply = await attempt(() => ask("errors"));
    if (!reply) {
      seen = null;
      return;
    }
    found = { ...reply.value, errors: reply.value.errors.map((each) => ({ ...each, last_error: lastErrorOf(traffic, each) })) };
    if (!list.contains(document.activeElement)) draw();
  }

  return { update };
}

/** The last error of a call or probe of the endpoint, possibly of another request; empty if there was no error. */
const lastErrorOf = (traffic, { backend, endpoint }) =>
  traffic.now.backends[backend]?.endpoints.find((each) => each.address === endpoint)?.last_error ?? "";

function group(reason, errors, explanation, of) {
  const columns = FIELDS.filter(([, read]) => errors.some((each) => read(each) !== NONE));
  const rows = errors.map((each) => columns.map(([, read]) => read(each)));
  const heading = html("h2", {}, html("span", { class: `badge ${explanation?.fault === "caller" ? "" : "down"}` }, reason || "unknown"), ` ${errors.length} of the last ${of}`);
  return html(
    "section",
    { class: "panel reason" },
    heading,
    explanation && html("p", {}, ...withCode(explanation.meaning)),
    explanation && html("p", {}, html("strong", {}, "What to do: "), ...withCode(explanation.look_at)),
    plainTable({ label: `Errors: ${reason}`, headings: columns.map(([title]) => title), names: columns.map(([, , name]) => name), rows }),
  );
}
