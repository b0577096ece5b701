// The last requests, with a search by id, model, principal and status, and the details of one request.

import { change, read, to } from "./address.js";
import { ask } from "./api.js";
import { html, setText, withCode } from "./dom.js";
import { NONE, count, dateTime, levelOf, seconds, time } from "./format.js";
import { STAGES, bar, swatch } from "./stages.js";
import { Table } from "./table.js";

const CONDITIONS = [["id", "Request id"], ["model", "Model"], ["principal", "Principal"]];
const HIDDEN = ["listener", "route", "backend"]; // conditions that only links set, without a field
const STATUSES = [
  ["", "Any status"], ["failed", "Any error"], ...[
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
  ].map((each) => [each, each]),
];

const badge = (request) => html("span", { class: `badge ${levelOf(request)}` }, request.status);
const keyOf = (request) => `${request.id} ${request.at}`;
const bytes = (value) => (value < 10_000 ? `${count(value)} B` : value < 1e7 ? `${Math.round(value / 1024)} KiB` : `${(value / 2 ** 20).toFixed(1)} MiB`);

/** The address of a request, with all conditions of the list. */
const at = (request) => to("requests", { ...Object.fromEntries(read().parameters), request: request.id });

const COLUMNS = [
  {
    id: "id", title: "Request id", text: (row) => row.id,
    fill: (cell, row) => cell.append(html("a", {
      href: at(row),
      click: (event) => {
        event.currentTarget.href = at(row); // the conditions can have changed
      },
    }, html("code", {}, row.id))),
  },
  { id: "time", title: "Time", text: (row) => time(row.at), value: (row) => row.at, saved: (row) => row.at },
  { id: "status", title: "Status", text: (row) => row.status, fill: (cell, row) => cell.append(badge(row)) },
  { id: "model", title: "Model", text: (row) => row.model || NONE },
  { id: "operation", title: "Operation", text: (row) => row.operation || NONE },
  { id: "principal", title: "Principal", text: (row) => row.principal || NONE },
  { id: "route", title: "Route", text: (row) => row.route || NONE },
  { id: "backend", title: "Backend", text: (row) => row.backend || NONE },
  { id: "total", title: "Total", text: (row) => seconds(row.seconds), value: (row) => row.seconds, number: true, unit: "s" },
];

export function show(root, { attempt }) {
  let found = null;
  let one = null; // the request that is shown; it stays when newer requests push it out of the list
  let isAsking = false;
  let asked = 0; // the time at which the list was read
  let isLive = read().parameters.get("live") !== "no";
  const table = new Table({ label: "Requests", columns: COLUMNS, key: keyOf, sort: "-time", empty: "No stored request matches." });
  const fields = new Map(CONDITIONS.map(([id, title]) => [id, html("input", {
    type: "search", placeholder: title, "aria-label": title, autocomplete: "off", spellcheck: "false", maxlength: 1024, input: () => search(),
  })]));
  fields.set("status", html("select", { "aria-label": "Status", change: () => search() }, ...STATUSES.map(([value, title]) => html("option", { value }, title))));
  const live = html("button", { type: "button", "aria-pressed": "true", click: () => follow(!isLive) }, "Live");
  const only = html("span", { class: "controls" });
  const about = html("section", { class: "panel", "aria-labelledby": "request-title", tabindex: "-1", hidden: true, keydown: (event) => { if (event.key === "Escape") close(); } });
  const told = html("span", { class: "muted", role: "status" });
  table.controls.replaceChildren(...fields.values(), table.order, live, table.csv, only, told); // the gateway searches, not the table
  root.append(
    html("h1", {}, "Requests"),
    html("p", { class: "muted" }, "The last thousand requests, and the last thousand failed requests, without headers, keys or tensors. While Live is pressed, new requests appear as they end."),
    table.controls,
    html("div", { class: "beside" }, table.element, about),
  );

  const kept = () => (isLive ? {} : { live: "no" });
  const conditions = () => Object.fromEntries([...read().parameters].filter(([name]) => fields.has(name) || HIDDEN.includes(name)));

  function search() {
    change(Object.fromEntries([...fields].map(([name, field]) => [name, field.value])));
    refresh();
  }

  /** Show new requests when they end, or keep the list unchanged. */
  function follow(wanted) {
    isLive = wanted;
    change({ live: isLive ? "" : "no" });
    live.setAttribute("aria-pressed", String(isLive));
    if (isLive) refresh();
    else tell();
  }

  /** Read the conditions from the address. */
  function take() {
    const { parameters } = read();
    for (const [name, field] of fields) if (document.activeElement !== field) field.value = parameters.get(name) ?? "";
    const kept = HIDDEN.filter((name) => parameters.get(name));
    only.replaceChildren(...kept.map((name) => html("button", {
      type: "button", class: "small", "aria-label": `${name} ${parameters.get(name)}: show all`,
      click: () => {
        change({ [name]: "" });
        take();
        refresh();
      },
    }, `${name} ${parameters.get(name)} ×`)));
  }

  async function refresh() {
    if (isAsking) return;
    isAsking = true;
    const wanted = JSON.stringify(conditions());
    const reply = await attempt(() => ask("requests", `?${new URLSearchParams(conditions())}`));
    isAsking = false;
    if (wanted !== JSON.stringify(conditions())) return refresh(); // the user has typed in the meantime
    if (!reply) return;
    found = reply.value;
    asked = Date.now();
    table.update(found.requests);
    tell();
    await choose();
  }

  function tell() {
    if (!found) return;
    const { length } = found.requests;
    const number = length < found.matching ? `the newest ${length} of ${count(found.matching)} that match` : `${count(found.matching)} of ${count(found.kept)}`;
    setText(told, isLive ? number : `${number}, as of ${time(new Date(asked).toISOString())}`);
  }

  function close() {
    const row = [...table.element.querySelectorAll("td a")].find((each) => each.textContent === one?.id);
    location.hash = to("requests", { ...conditions(), ...kept() });
    row?.focus();
  }

  async function choose() {
    const id = read().parameters.get("request");
    if (!id) {
      one = null;
      about.hidden = true;
      return;
    }
    const listed = found?.requests.find((each) => each.id === id);
    if (listed) describe(listed, found.reasons);
    else if (one?.id !== id) {
      const reply = await attempt(() => ask("requests", `?${new URLSearchParams({ id })}`));
      const other = reply?.value.requests.find((each) => each.id === id);
      if (other) describe(other, reply.value.reasons);
      else if (reply) tellGone(id);
    }
  }

  function tellGone(id) {
    one = { id };
    about.replaceChildren(html("h2", { id: "request-title" }, id), html("p", {}, "This request is no longer stored. Search for its id in the access log."));
    about.hidden = false;
  }

  function describe(request, reasons) {
    if (one && keyOf(one) === keyOf(request) && !about.hidden) return;
    one = request;
    about.replaceChildren(...description(request, reasons[request.reason]), html("p", {}, html("a", { href: to("requests", { ...conditions(), ...kept() }) }, "Close")));
    about.hidden = false;
    about.focus(); // on a phone, it is above the rows and out of view
  }

  live.setAttribute("aria-pressed", String(isLive));
  take();
  return {
    update: () => {
      if (isLive || !found) refresh();
    },
    moved: () => {
      take();
      refresh();
    },
  };
}

function description(request, explanation) {
  return [
    html("h2", { id: "request-title" }, request.id),
    html("p", {}, badge(request), ` ${request.code || ""} `, html("time", { datetime: request.at }, dateTime(request.at))),
    ...(request.reason ? [html("p", {}, html("strong", {}, request.reason), explanation ? ": " : "", ...withCode(explanation?.meaning ?? ""))] : []),
    ...(explanation ? [html("p", {}, html("strong", {}, "What to do: "), ...withCode(explanation.look_at))] : []),
    html("h3", {}, "Its way"),
    html("ol", { class: "way-of-one" }, ...stages(request).map((parts) => html("li", {}, ...parts))),
    html("h3", {}, "Its time"),
    ...spent(request),
    html("dl", { class: "facts" }, ...facts(request).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])),
    html("p", {}, html("a", { href: likeIt(request) }, "Explain a similar request")),
  ];
}

/** A link to the page of a route or backend. Listeners and graphs (which are listed with the routes) have no page. */
function linked(kind, name) {
  const hasPage = kind !== "listener" && !(kind === "route" && name.startsWith("models."));
  return html("a", { href: hasPage ? to(kind, { of: name }) : to("overview", { at: `${kind}:${name}` }) }, name);
}

function stages(request) {
  const isOfGraph = request.route.startsWith("models.");
  if (isOfGraph && !request.listener) return stepStages(request);
  const found = [["Listener ", linked("listener", request.listener), ` over ${request.in_protocol}`, ...(request.principal ? [", for ", linked("principal", request.principal)] : [])]];
  if (!request.route) return [...found, ["It matched no route"]];
  found.push(["Route ", linked("route", request.route), request.cache ? `, cache ${request.cache}` : "", request.read_for === "nothing" ? ", not decoded" : request.read_for ? `, decoded for ${request.read_for}` : ""]);
  if (isOfGraph) return [...found, [`${count(request.tries)} calls of its steps, which are counted at their backends: `, html("a", { href: to("graphs") }, "graphs")]];
  if (!request.tries) return [...found, [request.backend ? `Backend ${request.backend} was not called` : "No backend was called"]];
  return [...found, ...calls(request)];
}

/** The path of a call of a graph step. */
const stepStages = (request) => [["A step of the graph ", linked("route", request.route), ...(request.principal ? [", for ", linked("principal", request.principal)] : [])], ...calls(request)];

function calls({ tries, retries, backend, out_protocol: protocol, endpoint }) {
  const told = tries === 1 ? "one call" : `${count(tries)} calls${retries ? `, of which ${count(retries)} repeated an earlier one` : ""}`;
  return [
    ["Backend ", linked("backend", backend), protocol ? ` over ${protocol}, ${told}` : " was not called"],
    ...(endpoint ? [["Endpoint ", html("code", {}, endpoint)]] : []),
  ];
}

/** A bar that shows how the time is divided, and the same in words. */
function spent(request) {
  // parallel calls can add up to more than the request's duration: scale them to this duration, in proportion
  const fit = Math.min(1, request.seconds / Math.max(request.queued + request.upstream, 1e-12));
  const [queue, server] = [fit * request.queued, fit * request.upstream];
  const times = { queue, server, gateway: request.seconds - queue - server };
  return [
    bar(times),
    html("ul", { class: "legend" },
      ...STAGES.map(([name, title]) => html("li", {}, swatch(name), ` ${title} `, html("span", { class: "value" }, seconds(times[name])))),
      html("li", {}, "all ", html("span", { class: "value" }, seconds(request.seconds)))),
  ];
}

function facts(request) {
  return [
    ["Model", request.model ? linked("model", request.model) : NONE],
    ["Operation", request.operation || NONE],
    ["Client", request.client || "a unix socket"],
    ["Bytes in, out", `${bytes(request.bytes_in)}, ${bytes(request.bytes_out)}`],
    ...(request.losses.length ? [["Lost in conversion", request.losses.join(", ")]] : []),
  ];
}

/** A link to the playground's form, whose button Explain shows which routes match, and why. */
function likeIt({ listener, in_protocol: protocol, model, operation }) {
  return to("playground", { listener, protocol, model, operation });
}
