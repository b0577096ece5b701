// Listeners, routes, backends and endpoints as tables.

import { to } from "./address.js";
import * as api from "./api.js";
import { html, twice } from "./dom.js";
import { callsOf, nodesOf, stateOf, wordOf } from "./drawing.js";
import { NONE, conditions, count, rate, seconds, share } from "./format.js";
import { Mirrors } from "./mirrors.js";
import { roleOf } from "./overview.js";
import { Table } from "./table.js";

const figures = (group, key) => [
  number("rate", "Rate", (sum) => rate(sum.rate), (sum) => sum.rate),
  number("errors", "Failed", (sum) => share(sum.errors, sum.requests), (sum) => (sum.requests ? sum.errors / sum.requests : -1)),
  number("rejected", "Rejected", (sum) => share(sum.rejected, sum.requests), (sum) => (sum.requests ? sum.rejected / sum.requests : -1)),
  number("median", "Median", (sum) => seconds(sum.quantile(0.5)), (sum) => sum.quantile(0.5) ?? -1),
  number("slow", "99 %", (sum) => seconds(sum.quantile(0.99)), (sum) => sum.quantile(0.99) ?? -1),
  number("total", "Total", (sum) => count(sum.total), (sum) => sum.total),
  number("failed", "Failed, total", (sum) => count(sum.totalErrors), (sum) => sum.totalErrors),
  number("rejections", "Rejected, total", (sum) => count(sum.totalRejected), (sum) => sum.totalRejected),
].map((column) => ({
  ...column,
  unit: { rate: "per second", errors: "share", rejected: "share", median: "s", slow: "s" }[column.id],
  text: (row) => column.text(row.traffic.of(group, key(row))),
  value: (row) => column.value(row.traffic.of(group, key(row))),
}));

function number(id, title, text, value) {
  return { id, title, text, value, number: true };
}

/** A column whose cells link to the page of the route or backend. `of` returns its name. */
function paged(id, title, kind, of) {
  return { id, title, text: of, fill: (cell, row) => cell.append(html("a", { href: to(kind, { of: of(row) }) }, of(row))) };
}

/** A column whose cells link to the node in the overview. */
function name(id, title, text, at) {
  return { id, title, text, fill: (cell, row) => cell.append(html("a", { href: to("overview", { at: at(row) }) }, text(row))) };
}

function badge(id, title, text, state) {
  return {
    id, title, text,
    fill: (cell, row) => cell.append(html("span", { class: `badge ${state(row)}` }, text(row))),
  };
}

function view(title, made) {
  return (root, page) => {
    const { rows, below, ...settings } = made(page);
    const table = new Table({ label: title, ...settings });
    const more = below?.(page);
    root.append(html("h1", {}, title), table.element, more?.element ?? "");
    return {
      update: (model) => {
        table.update(rows(model));
        more?.update(model);
      },
    };
  };
}

/** A button that drains an endpoint or ends its drain. It must be pressed twice. */
function drainButton({ backend, name: endpoint, about }, attempt) {
  const send = (undo) => attempt(() => api.post("../drain", { backend, endpoint, undo }));
  if (about.drain) return html("button", { type: "button", class: "small", click: () => send(true) }, "Serve again");
  return twice("Drain", () => send(false));
}

export const listeners = view("Listeners", () => ({
  rows: ({ topology, traffic }) =>
    topology.listeners.map((each) => ({ ...each, traffic, now: traffic.now.listeners[each.name] })),
  key: (row) => row.name,
  columns: [
    name("name", "Name", (row) => row.name, (row) => `listener:${row.name}`),
    { id: "address", title: "Address", text: (row) => row.address },
    { id: "protocols", title: "Protocols", text: (row) => row.protocols.join(", "), wide: true },
    { id: "security", title: "Security", text: (row) => [row.tls && "TLS", row.auth && "keys"].filter(Boolean).join(", ") || NONE },
    ...figures("listeners", (row) => row.name),
    number("inFlight", "In flight", (row) => count(row.now?.in_flight ?? 0), (row) => row.now?.in_flight ?? 0),
    number("connections", "Connections", (row) => count(row.now?.connections ?? 0), (row) => row.now?.connections ?? 0),
    number("refused", "Refused", (row) => count(row.now?.refused ?? 0), (row) => row.now?.refused ?? 0),
  ],
}));

export const routes = view("Routes", () => ({
  rows: ({ topology, traffic }) => topology.routes.map((each, at) => ({ ...each, at, traffic })),
  key: (row) => row.name,
  below: ({ attempt }) => new Mirrors(attempt),
  empty: "No routes are configured, so the gateway refuses every request.",
  columns: [
    { ...paged("name", "Name", "route", (row) => row.name), value: (row) => row.at },
    { id: "match", title: "Matches", text: (row) => conditions(row.match), wide: true },
    {
      id: "backends", title: "Backends", text: (row) => row.backends.map(roleOf).join(", "),
      fill: (cell, row) => row.backends.forEach((each, at) =>
        cell.append(at ? ", " : "", html("a", { href: to("backend", { of: each.name }) }, roleOf(each)))),
    },
    { id: "listeners", title: "Listeners", text: (row) => row.listeners.join(", ") || NONE },
    { id: "policies", title: "Policies", text: (row) => row.policies.join(", ") || NONE },
    ...figures("routes", (row) => row.name),
  ],
}));

export const backends = view("Backends", () => ({
  rows: ({ topology, traffic }) =>
    topology.backends.map((each) => ({ ...each, traffic, now: traffic.now.backends[each.name] })),
  key: (row) => row.name,
  columns: [
    paged("name", "Name", "backend", (row) => row.name),
    { id: "protocol", title: "Protocol", text: (row) => [row.protocol, row.flavor].filter(Boolean).join(", ") },
    badge(
      "endpoints", "Endpoints up",
      (row) => `${(row.now?.endpoints ?? []).filter((each) => each.state !== "down").length} of ${(row.now?.endpoints ?? []).length}`,
      (row) => stateOf(row.traffic, { kind: "backend", key: row.name }),
    ),
    ...figures("backends", (row) => row.name),
    number("inFlight", "In flight", (row) => (row.now?.slots ? `${count(callsOf(row.now))} of ${count(row.now.slots)}` : count(callsOf(row.now))), (row) => callsOf(row.now)),
    number("waiting", "Waiting", (row) => (row.now?.queue ? `${count(row.now.waiting)} of ${count(row.now.queue)}` : count(row.now?.waiting ?? 0)), (row) => row.now?.waiting ?? 0),
    { id: "policies", title: "Policies", text: (row) => row.policies.join(", ") || NONE },
  ],
}));

export const endpoints = view("Endpoints", ({ attempt }) => ({
  rows: (model) => nodesOf(model).endpoint.map((each) => ({ ...each, traffic: model.traffic })),
  key: (row) => row.key,
  columns: [
    name("address", "Address", (row) => row.name, (row) => `endpoint:${row.key}`),
    { id: "backend", title: "Backend", text: (row) => row.backend },
    badge("state", "State", (row) => wordOf(row.about), (row) => stateOf(row.traffic, row)),
    ...figures("endpoints", (row) => row.key),
    number("inFlight", "In flight", (row) => count(row.about.in_flight), (row) => row.about.in_flight),
    { id: "error", title: "Last error", text: (row) => row.about.last_error ?? NONE, wide: true },
    {
      id: "drain", title: "Maintenance", saved: null, text: (row) => (row.about.drain ? "Serve again" : "Drain"),
      fill: (cell, row) => cell.append(drainButton(row, attempt)),
    },
  ],
}));
