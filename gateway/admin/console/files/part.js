// The pages of a route, a backend and a model: settings, traffic and latencies.

import { read, to } from "./address.js";
import { ask } from "./api.js";
import { html, setText } from "./dom.js";
import { NONE, conditions, count, dateTime, levelOf, rate, seconds, share, time } from "./format.js";
import { History } from "./history.js";
import { Stages } from "./stages.js";
import { plainTable } from "./table.js";

const ASKED_AGAIN = 4000; // milliseconds
const LISTED = 20; // requests
const HEADINGS = ["Request id", "Time", "Status", "Model", "Principal", "Total"];

export const link = (kind, name) => html("a", { href: to(kind, { of: name }) }, name);
export const list = (nodes) => (nodes.length ? nodes.flatMap((each, at) => (at ? [", ", each] : [each])) : [NONE]);

/** Whether the pointer or the focus is on `node`, so that its content must not change now. */
const isHeld = (node) => node.childElementCount > 0 && (node.matches(":hover") || node.contains(document.activeElement));

/** A list of names and values. */
export const facts = (entries) => html("dl", { class: "facts" }, ...entries.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));

const shown = new WeakMap(); // for each node, the value that it shows, as JSON

/** Fill `node` with `make()`, but only if `value` has changed, so that nothing jumps and selections stay. */
export function renew(node, value, make) {
  const text = JSON.stringify(value);
  if (shown.get(node) === text) return;
  shown.set(node, text);
  node.replaceChildren(...make());
}

/** A page with a heading, and with sections that are filled repeatedly. */
export class PartPage {
  constructor(root, kind, title) {
    this.name = read().parameters.get("of") ?? "";
    this.about = html("section", { class: "panel part", "aria-label": "About" });
    this.policies = html("section", { class: "part", "aria-label": "Policies" });
    this.requests = html("div", { class: "part" });
    this.asked = -Infinity;
    root.append(html("h1", {}, `${title} ${this.name}`), this.about);
  }

  /** Whether it is time to query the gateway again. */
  get isDue() {
    const now = performance.now();
    if (now - this.asked < ASKED_AGAIN) return false;
    this.asked = now;
    return true;
  }

  /** Show that the object does not exist, with a link to the list of existing objects. */
  tellNone(text, view) {
    if (!isHeld(this.about)) this.about.replaceChildren(html("p", {}, text), html("p", {}, html("a", { href: to(view) }, `All ${view}`)));
  }

  /** Show the traffic of the object, compared with all requests of the gateway. `sum` and `all` are as in Traffic. */
  tell(entries, sum, all) {
    const passed = sum && [
      ["Requests", `${rate(sum.rate)}, ${count(sum.total)} since the start`],
      ["Share of all requests", `${share(sum.requests, all.requests)} now, ${share(sum.total, all.total)} since the start`],
      ["Failed", `${share(sum.errors, sum.requests)} now, ${share(sum.totalErrors, sum.total)} since the start`],
      ["Rejected", `${share(sum.rejected, sum.requests)} now, ${share(sum.totalRejected, sum.total)} since the start`],
      ["Median, 95 %, 99 %", [0.5, 0.95, 0.99].map((part) => seconds(sum.quantile(part))).join(", ")],
    ];
    if (!isHeld(this.about)) this.about.replaceChildren(facts([...entries, ...(passed ?? [])]));
  }

  tellPolicies(found) {
    renew(this.policies, found, () => [
      html("h2", {}, "Policies"),
      ...(found.length ? found.map(policy) : [html("p", { class: "muted" }, "No policies.")]),
    ]);
  }

  tellRequests(found, query) {
    if (isHeld(this.requests)) return;
    renew(this.requests, found, () => [
      html("h2", {}, "The last requests"),
      found.length
        ? plainTable({ label: "The last requests", headings: HEADINGS, names: HEADINGS.map((_, at) => (at === 5 ? "number" : undefined)), rows: found.map((each) => requestRow(each, query)) })
        : html("p", { class: "muted" }, "No requests are stored."),
      html("p", {}, html("a", { href: to("requests", query) }, "Search in requests")),
    ]);
  }
}

const requestRow = (each, query) => [
  html("a", { href: to("requests", { ...query, request: each.id }) }, html("code", {}, each.id)),
  html("time", { datetime: each.at, title: dateTime(each.at) }, time(each.at)),
  html("span", { class: `badge ${levelOf(each)}` }, each.status),
  each.model ? link("model", each.model) : NONE,
  each.principal ? link("principal", each.principal) : NONE,
  seconds(each.seconds),
];

function policy({ name, settings, states }) {
  const told = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "") || NONE);
  const pairs = (object) => facts(Object.entries(object).map(([key, value]) => [key, told(value)]));
  return html("div", { class: "panel policy" },
    html("h3", {}, name),
    html("div", {}, html("h4", {}, "Settings"), pairs(settings)),
    states.length ? html("div", {}, html("h4", {}, "State"), ...states.map(pairs)) : "");
}

/** The page of a route or backend. `entries(model, name)`: its facts, or null if it does not exist. */
function configured(kind, title, place, entries) {
  return (root, { attempt }) => {
    const page = new PartPage(root, kind, title);
    const stages = new Stages("h3");
    const history = new History(attempt, kind, page.name, stages);
    const parts = [history.element, page.policies, page.requests];
    root.append(...parts);

    async function update(model) {
      const found = entries(model, page.name);
      for (const each of parts) each.hidden = !found;
      if (!found) return page.tellNone(`The configuration in use has no ${kind} ${page.name}.`, `${kind}s`);
      page.tell(found, model.traffic.of(`${kind}s`, page.name), model.traffic.groups.all);
      history.update();
      if (!page.isDue) return;
      const summary = await attempt(() => ask("summary", `?${new URLSearchParams({ kind, name: page.name })}`));
      if (summary) stages.tellSummary(summary.value);
      const policies = await attempt(() => ask("policies", `?${new URLSearchParams({ place: place(page.name) })}`));
      if (policies) page.tellPolicies(policies.value.policies);
      const requests = await attempt(() => ask("requests", `?${new URLSearchParams({ [kind]: page.name, most: LISTED })}`));
      if (requests) page.tellRequests(requests.value.requests, { [kind]: page.name });
    }

    return { update };
  };
}

export const route = configured("route", "Route", (name) => name, ({ topology }, name) => {
  const found = topology.routes.find((each) => each.name === name);
  return found && [
    ["Matches", conditions(found.match)],
    ["Listeners", found.listeners.join(", ") || NONE],
    ["Backends", list(found.backends.map((each) => link("backend", each.name)))],
    ["In the overview", html("a", { href: to("overview", { at: `route:${name}` }) }, "show the traffic")],
  ];
});

export const backend = configured("backend", "Backend", (name) => `backends.${name}`, ({ topology, traffic }, name) => {
  const found = topology.backends.find((each) => each.name === name);
  const now = traffic.now.backends[name];
  if (!found || !now) return null;
  const inFlight = now.endpoints.reduce((sum, each) => sum + each.in_flight, 0);
  const routes = topology.routes.filter((each) => each.backends.some((one) => one.name === name));
  return [
    ["Protocol", [found.protocol, found.flavor].filter(Boolean).join(", ")],
    ["Routes", list(routes.map((each) => link("route", each.name)))],
    ["Endpoints", list(now.endpoints.map((each) => html("span", {}, html("code", {}, each.address), ` ${each.drain ?? each.state}`)))],
    ["In flight", now.slots ? `${count(inFlight)} of ${count(now.slots)}` : count(inFlight)],
    ["Waiting", now.queue ? `${count(now.waiting)} of ${count(now.queue)}` : "no limit on calls in flight"],
    ["In the overview", html("a", { href: to("overview", { at: `backend:${name}` }) }, "show the traffic")],
  ];
});

/** A page for a name that clients choose, filled from the last requests. `made(view)` returns the parts of the specific page:
 * `more` are nodes that `refresh(name)` fills, and `entries(names)` are facts from the names in the requests. */
export function named(kind, title, made) {
  return (root, view) => {
    const { attempt } = view;
    const page = new PartPage(root, kind, title);
    const stages = new Stages("h2");
    const { more, entries, refresh } = made(view);
    root.append(...more, stages.element, page.requests);

    async function update() {
      if (!page.isDue) return;
      const query = new URLSearchParams({ kind, name: page.name });
      const summary = await attempt(() => ask("summary", `?${query}`));
      if (!summary) return;
      page.tell([...figures(summary.value), ...entries(summary.value.names)]);
      stages.tellSummary(summary.value);
      await refresh(page.name);
      const requests = await attempt(() => ask("requests", `?${new URLSearchParams({ [kind]: page.name, exactly: true, most: LISTED })}`));
      if (requests) page.tellRequests(requests.value.requests, { [kind]: page.name });
    }

    return { update };
  };
}

/** The figures in a reply of /api/summary. */
const figures = ({ requests, of, failed, rejected, total }) => [
  ["Requests", `${count(requests)}, ${share(requests, of)} of the last ${count(of)} of the gateway`],
  ["Failed", `${count(failed)}, ${share(failed, requests)}`],
  ["Rejected", `${count(rejected)}, ${share(rejected, requests)}`],
  ["Median, 95 %, 99 %", [total.median, total.p95, total.p99].map(seconds).join(", ")],
];

export const model = named("model", "Model", () => ({
  more: [],
  entries: ({ route: routes, backend: backends, principal: principals }) => [
    ["Routes", list(routes.map((each) => (each.startsWith("models.") ? each : link("route", each))))],
    ["Backends", list(backends.map((each) => link("backend", each)))],
    ["Principals", list(principals.map((each) => link("principal", each)))],
  ],
  refresh: () => {},
}));
