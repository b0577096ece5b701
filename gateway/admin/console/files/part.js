// The pages of a route, a backend, a model and a principal: what is set, what passes, and how long it takes.

import { read, to } from "./address.js";
import { ask } from "./api.js";
import { html, setText } from "./dom.js";
import { NONE, conditions, count, rate, seconds, share, time } from "./format.js";
import { History } from "./history.js";

const ASKED_AGAIN = 4000; // milliseconds
const LISTED = 20; // requests
const KEPT = 2000; // requests that the gateway keeps at most, besides a part of a batch

const hasFailed = (request) => request.status !== "OK" || request.code >= 400;
const link = (kind, name) => html("a", { href: to(kind, { of: name }) }, name);
const list = (nodes) => (nodes.length ? nodes.flatMap((each, at) => (at ? [", ", each] : [each])) : [NONE]);

/** Whether the pointer or the focus is on it, so that nothing is taken from under it. */
const isHeld = (node) => node.childElementCount > 0 && (node.matches(":hover") || node.contains(document.activeElement));

/** A list of names and values. */
const facts = (entries) => html("dl", { class: "facts" }, ...entries.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));

/** A page: its heading, and sections that are filled again and again. */
class PartPage {
  constructor(root, kind, title) {
    this.name = read().parameters.get("of") ?? "";
    this.about = html("section", { class: "panel part", "aria-label": "About" });
    this.policies = html("section", { class: "part", "aria-label": "Policies" });
    this.requests = html("div", { class: "part" });
    this.asked = -Infinity;
    root.append(html("h1", {}, `${title} ${this.name}`), this.about);
  }

  /** Whether it is time to ask the gateway again. */
  get isDue() {
    const now = performance.now();
    if (now - this.asked < ASKED_AGAIN) return false;
    this.asked = now;
    return true;
  }

  /** What passes the part, beside all of the gateway's requests. `sum` and `all` as in Traffic. */
  tell(entries, sum, all) {
    const passed = sum && [
      ["Requests", `${rate(sum.rate)}, ${count(sum.total)} since the start`],
      ["Share of all requests", `${share(sum.requests, all.requests)} now, ${share(sum.total, all.total)} since the start`],
      ["Failed", `${share(sum.errors, sum.requests)} now, ${share(sum.totalErrors, sum.total)} since the start`],
      ["Median, 95 %, 99 %", [0.5, 0.95, 0.99].map((part) => seconds(sum.quantile(part))).join(", ")],
    ];
    if (!isHeld(this.about)) this.about.replaceChildren(facts([...entries, ...(passed ?? [])]));
  }

  tellPolicies(found) {
    this.policies.replaceChildren(
      html("h2", {}, "Policies"),
      ...(found.length ? found.map(policy) : [html("p", { class: "muted" }, "There are none here.")]),
    );
  }

  tellRequests(found, query) {
    if (isHeld(this.requests)) return;
    const rows = found.slice(0, LISTED).map((each) => html("tr", {},
      html("td", {}, html("a", { href: to("requests", { ...query, request: each.id }) }, html("code", {}, each.id))),
      html("td", {}, time(each.at)),
      html("td", {}, html("span", { class: `badge ${hasFailed(each) ? "down" : "ok"}` }, each.status)),
      html("td", {}, each.model ? link("model", each.model) : NONE),
      html("td", {}, each.principal ? link("principal", each.principal) : NONE),
      html("td", { class: "number" }, seconds(each.seconds))));
    const headings = ["Request id", "Time", "Status", "Model", "Principal", "Total"];
    this.requests.replaceChildren(
      html("h2", {}, "The last requests"),
      rows.length
        ? html("div", { class: "scroll", role: "region", "aria-label": "The last requests", tabindex: "0" }, html("table", {},
          html("thead", {}, html("tr", {}, ...headings.map((each) => html("th", { scope: "col", class: each === "Total" ? "number" : undefined }, each)))),
          html("tbody", {}, ...rows)))
        : html("p", { class: "muted" }, "None is kept."),
      html("p", {}, html("a", { href: to("requests", query) }, "Search in requests")),
    );
  }
}

function policy({ name, settings, states }) {
  const told = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "") || NONE);
  const pairs = (object) => facts(Object.entries(object).map(([key, value]) => [key, told(value)]));
  return html("div", { class: "panel policy" },
    html("h3", {}, name),
    html("div", {}, html("h4", {}, "Settings"), pairs(settings)),
    states.length ? html("div", {}, html("h4", {}, "State"), ...states.map(pairs)) : "");
}

/** A page of a place of the configuration. `entries(model, name)`: its facts; null if there is no such part. */
function configured(kind, title, place, entries) {
  return (root, { attempt }) => {
    const page = new PartPage(root, kind, title);
    const history = new History(attempt, kind, page.name);
    root.append(history.element, page.policies, page.requests);

    async function update(model) {
      const found = entries(model, page.name);
      if (!found) {
        page.about.replaceChildren(html("p", {}, `The configuration in use has no ${kind} ${page.name}.`));
        for (const each of [history.element, page.policies, page.requests]) each.hidden = true;
        return;
      }
      page.tell(found, model.traffic.of(`${kind}s`, page.name), model.traffic.groups.all);
      history.update();
      if (!page.isDue) return;
      const policies = await attempt(() => ask("policies", `?${new URLSearchParams({ place: place(page.name) })}`));
      if (policies) page.tellPolicies(policies.value.policies);
      const requests = await attempt(() => ask("requests", `?${new URLSearchParams({ [kind]: page.name, most: LISTED })}`));
      if (requests) page.tellRequests(requests.value.requests, { [kind]: page.name });
    }

    return { update };
  };
}

export const route = configured("route", "Route", (name) => name, ({ topology }, name) => {
  const found = topology.routes.find((each) => each.place === name);
  return found && [
    ["Matches", conditions(found.match)],
    ["Listeners", found.listeners.join(", ") || NONE],
    ["Backends", list(found.backends.map((each) => link("backend", each.name)))],
    ["In the overview", html("a", { href: to("overview", { at: `route:${name}` }) }, "what flows where")],
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
    ["Routes", list(routes.map((each) => link("route", each.place)))],
    ["Endpoints", list(now.endpoints.map((each) => html("span", {}, html("code", {}, each.address), ` ${each.drain ?? each.state}`)))],
    ["In flight", now.slots ? `${count(inFlight)} of ${count(now.slots)}` : count(inFlight)],
    ["Waiting", now.queue ? `${count(now.waiting)} of ${count(now.queue)}` : "no limit of calls in flight"],
    ["In the overview", html("a", { href: to("overview", { at: `backend:${name}` }) }, "what flows where")],
  ];
});

/** A page of a name that clients choose, of which the requests tell that are kept. */
function named(kind, title, more) {
  return (root, { attempt }) => {
    const page = new PartPage(root, kind, title);
    const note = html("p", { class: "muted" });
    root.append(note, page.requests);

    async function update() {
      if (!page.isDue) return;
      const reply = await attempt(() => ask("requests", `?${new URLSearchParams({ [kind]: page.name, most: KEPT })}`));
      if (!reply) return;
      const found = reply.value.requests.filter((each) => each[kind] === page.name); // the gateway finds parts of names
      page.tell([...summary(found, reply.value.kept), ...(await more(page.name, found, attempt))]);
      setText(note, "Counted are the requests that are kept: the last thousand of the gateway, and the last thousand that failed.");
      page.tellRequests(found, { [kind]: page.name });
    }

    return { update };
  };
}

function summary(found, kept) {
  const failed = found.filter(hasFailed).length;
  const sorted = found.map((each) => each.seconds).sort((a, b) => a - b);
  const at = (part) => (sorted.length ? seconds(sorted[Math.ceil(part * sorted.length) - 1]) : NONE);
  const mean = (key) => (found.length ? seconds(found.reduce((sum, each) => sum + each[key], 0) / found.length) : NONE);
  return [
    ["Requests", `${count(found.length)}, ${share(found.length, kept)} of those that are kept`],
    ["Failed", `${count(failed)}, ${share(failed, found.length)}`],
    ["Median, 95 %, 99 %", [0.5, 0.95, 0.99].map(at).join(", ")],
    ["Mean in queues, at the server, all", [mean("queued"), mean("upstream"), mean("seconds")].join(", ")],
  ];
}

const distinct = (found, key) => [...new Set(found.map((each) => each[key]).filter(Boolean))].sort();

export const model = named("model", "Model", async (name, found) => [
  ["Routes", list(distinct(found, "route").map((each) => (each.startsWith("routes[") ? link("route", each) : each)))],
  ["Backends", list(distinct(found, "backend").map((each) => link("backend", each)))],
  ["Principals", list(distinct(found, "principal").map((each) => link("principal", each)))],
]);

export const principal = named("principal", "Principal", async (name, found, attempt) => {
  const keys = await attempt(() => ask("keys", `?${new URLSearchParams({ text: name })}`));
  const own = (keys?.value.keys ?? []).filter((each) => each.principal === name);
  return [
    ["Models", list(distinct(found, "model").map((each) => link("model", each)))],
    ["API keys", list(own.map((each) => html("span", {}, html("code", {}, each.id), ` ${each.state}`)))],
  ];
});
