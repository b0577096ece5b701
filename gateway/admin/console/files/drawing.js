// The traffic as a drawing: listeners, routes, backends and endpoints in four columns.

import { to } from "./address.js";
import { fitted, html, setText, svg } from "./dom.js";
import { conditions, count, rate, seconds, share } from "./format.js";
import { keyOf } from "./traffic.js";

const WIDTH = 202;
const HEIGHT = 46;
const GAP = 12;
const BETWEEN = 78;
const TOP = 30;
const MOST = { listener: 8, route: 12, backend: 12, endpoint: 16 };
const KINDS = ["listener", "route", "backend", "endpoint"];
const TITLES = { listener: "Listeners", route: "Routes", backend: "Backends", endpoint: "Endpoints" };
const GROUPS = { listener: "listeners", route: "routes", backend: "backends", endpoint: "endpoints" };

/** All nodes, as `{kind, key, name, text}` and the configuration that each node stands for. */
export function nodesOf(model) {
  const { topology, traffic } = model;
  const listeners = topology.listeners.map((each) => ({
    kind: "listener", key: each.name, name: each.name, text: each.protocols.join(", "), about: each,
  }));
  // a model graph gets its requests before all routes
  const graphs = topology.graphs.map((each) => ({
    kind: "route", key: each.place, name: each.name, text: each.place, about: { ...each, policies: [] },
  }));
  const routes = [...graphs, ...topology.routes.map((each) => ({
    kind: "route", key: each.name, name: each.name, text: more(each), about: each,
  }))];
  const backends = topology.backends.map((each) => ({
    kind: "backend", key: each.name, name: each.name, text: each.protocol, about: each,
  }));
  const endpoints = topology.backends.flatMap((backend) =>
    (traffic.now?.backends[backend.name]?.endpoints ?? []).map((each) => ({
      kind: "endpoint", key: keyOf(backend.name, each.address), name: each.address, text: wordOf(each), about: each,
      backend: backend.name,
    })),
  );
  return { listener: listeners, route: routes, backend: backends, endpoint: endpoints };
}

/** The conditions of a route, unless its name already contains them. */
function more({ name, match }) {
  const text = conditions(match);
  return text === name ? "" : text;
}

/** The nodes that are connected to the node `at` (`kind:key`), or all nodes. */
function connected(nodes, at) {
  const [kind, key] = split(at);
  const chosen = nodes[kind]?.find((each) => each.key === key);
  if (!chosen) return { nodes, chosen: null };
  const backendName = kind === "backend" ? key : kind === "endpoint" ? chosen.backend : null;
  const routes = nodes.route.filter(({ key: name, about }) => {
    if (kind === "route") return name === key;
    if (kind === "listener") return about.listeners.includes(key);
    return about.backends.some((each) => each.name === backendName);
  });
  const listeners = new Set(routes.flatMap(({ about }) => about.listeners));
  const backends = new Set(routes.flatMap(({ about }) => about.backends.map((each) => each.name)));
  return {
    chosen,
    nodes: {
      listener: nodes.listener.filter((each) => (kind === "listener" ? each === chosen : listeners.has(each.key))),
      route: routes,
      backend: nodes.backend.filter((each) => (backendName ? each.key === backendName : backends.has(each.key))),
      endpoint: nodes.endpoint.filter((each) =>
        kind === "endpoint" ? each === chosen : backendName ? each.backend === backendName : backends.has(each.backend),
      ),
    },
  };
}

function split(at) {
  const colon = at.indexOf(":");
  return colon < 0 ? ["", ""] : [at.slice(0, colon), at.slice(colon + 1)];
}

const sumOf = (traffic, node) => traffic.of(GROUPS[node.kind], node.key);

/** The busiest nodes of a kind, in the order of the configuration. */
function busiest(traffic, nodes, kind) {
  if (nodes.length <= MOST[kind]) return nodes;
  const ranked = nodes.map((node, at) => ({ node, at, sum: sumOf(traffic, node) }));
  ranked.sort((a, b) => b.sum.rate - a.sum.rate || b.sum.total - a.sum.total || a.at - b.at);
  return ranked.slice(0, MOST[kind]).sort((a, b) => a.at - b.at).map(({ node }) => node);
}

/** The busiest nodes of all kinds. Only endpoints of the shown backends are included, and routes to these backends come first. */
function selected(traffic, nodes) {
  const shown = { listener: busiest(traffic, nodes.listener, "listener") };
  shown.route = busiest(traffic, nodes.route, "route");
  const named = new Set(shown.route.flatMap(({ about }) => about.backends.map((each) => each.name)));
  const reached = nodes.backend.filter((each) => named.has(each.key));
  shown.backend = busiest(traffic, nodes.backend.length <= MOST.backend ? nodes.backend : reached, "backend");
  const backends = new Set(shown.backend.map((each) => each.key));
  shown.endpoint = busiest(traffic, nodes.endpoint.filter((each) => backends.has(each.backend)), "endpoint");
  return shown;
}

function edgesOf(traffic, shown) {
  const has = Object.fromEntries(KINDS.map((kind) => [kind, new Set(shown[kind].map((each) => each.key))]));
  const edges = [];
  for (const { key, about } of shown.route) {
    for (const name of about.listeners) {
      if (has.listener.has(name)) edges.push({ from: `listener:${name}`, to: `route:${key}`, role: "main", sums: [keyOf(name, key)] });
    }
    for (const { name, role } of about.backends) {
      if (has.backend.has(name)) edges.push({ from: `route:${key}`, to: `backend:${name}`, role, sums: [keyOf(key, name)] });
    }
  }
  for (const { key, backend } of shown.endpoint) {
    edges.push({ from: `backend:${backend}`, to: `endpoint:${key}`, role: "main", endpoint: key });
  }
  return edges;
}

const sumOfEdge = (traffic, edge) =>
  edge.endpoint ? traffic.of("endpoints", edge.endpoint) : traffic.of("edges", edge.sums[0]);

export class Drawing {
  /** `describe(node or null)` is called when the pointer or the focus enters or leaves a node. */
  constructor(describe) {
    this.describe = describe;
    this.made = "";
    this.parts = new Map();
    this.edges = [];
    this.element = html("div", { class: "drawing scroll", role: "region", "aria-label": "Traffic", tabindex: "0" });
    this.note = html("p", { class: "muted note" });
  }

  /** Draw the model. `at`: the selected node, or empty. `words`: the words that names must contain. */
  update(model, at, words) {
    const all = filtered(nodesOf(model), words);
    const { nodes, chosen } = connected(all, at);
    const shown = selected(model.traffic, nodes);
    const edges = edgesOf(model.traffic, shown);
    const made = JSON.stringify([KINDS.map((kind) => shown[kind].map((each) => [each.key, each.name])), edges, chosen?.key ?? ""]);
    if (made !== this.made) {
      this.made = made;
      this.#make(shown, edges, chosen);
    }
    for (const kind of KINDS) for (const node of shown[kind]) this.#fill(model, node);
    for (const edge of this.edges) this.#flow(model.traffic, edge);
    setText(this.note, this.#limits(nodes, shown));
    return chosen;
  }

  #limits(nodes, shown) {
    const left = KINDS.filter((kind) => shown[kind].length < nodes[kind].length).map(
      (kind) => `${shown[kind].length} of ${count(nodes[kind].length)} ${TITLES[kind].toLowerCase()}`,
    );
    return left.length ? `Only the busiest are drawn: ${left.join(", ")}. The tables list all.` : "";
  }

  #make(shown, edges, chosen) {
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset.node : null;
    const most = Math.max(1, ...KINDS.map((kind) => shown[kind].length));
    const height = TOP + most * (HEIGHT + GAP) + 4;
    const width = KINDS.length * WIDTH + (KINDS.length - 1) * BETWEEN + 8;
    const places = new Map();
    const lines = svg("g");
    const figures = svg("g"); // above all lines, so that no line crosses a figure
    this.parts.clear();
    const drawing = svg("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
      "aria-label": "Listeners lead to routes, routes to backends, backends to endpoints",
    });
    const columns = KINDS.map((kind, column) => {
      const x = 4 + column * (WIDTH + BETWEEN);
      const free = height - TOP - shown[kind].length * (HEIGHT + GAP);
      const group = svg("g", { role: "list", "aria-label": TITLES[kind] },
        svg("text", { class: "column", x, y: 16, "aria-hidden": "true" }, TITLES[kind]));
      shown[kind].forEach((node, at) => {
        const y = TOP + Math.min(free / 2, 120) + at * (HEIGHT + GAP);
        places.set(`${kind}:${node.key}`, { x, y: y + HEIGHT / 2 });
        group.append(this.#node(node, x, y, node === chosen));
      });
      return group;
    });
    this.edges = edges.map((edge) => this.#edge(lines, figures, edge, edges, places)).filter(Boolean);
    drawing.append(lines, figures, ...columns);
    this.element.replaceChildren(drawing);
    if (focused !== null) this.element.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
  }

  #node(node, x, y, isChosen) {
    const id = `${node.kind}:${node.key}`;
    const name = svg("text", { class: "title", x: 14, y: 19 }, fitted(node.name, WIDTH - 22));
    const state = svg("rect", { class: "state", x: 0, y: 0, width: 5, height: HEIGHT, rx: 2 });
    const numbers = svg("text", { class: "numbers", x: 14, y: 36 });
    const full = svg("title");
    const link = svg(
      "a",
      {
        href: isChosen ? to("overview") : to("overview", { at: id }), class: isChosen ? "node chosen" : "node", "data-node": id,
        transform: `translate(${x} ${y})`, "aria-current": isChosen ? "true" : undefined,
        focus: () => this.#attend(id), blur: () => this.#attend(null),
        pointerenter: () => this.#attend(id), pointerleave: () => this.#attend(null),
      },
      full, svg("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 6 }), state, name, numbers,
    );
    this.parts.set(id, { node, state, numbers, full });
    return svg("g", { role: "listitem" }, link);
  }

  #edge(lines, figures, edge, edges, places) {
    const from = places.get(edge.from);
    const target = places.get(edge.to);
    if (!from || !target) return null;
    const [x1, x2] = [from.x + WIDTH, target.x];
    const bend = BETWEEN * 0.55;
    const d = `M${x1} ${from.y}C${x1 + bend} ${from.y} ${x2 - bend} ${target.y} ${x2} ${target.y}`;
    const full = svg("title");
    const line = svg("path", { d, class: "line" });
    // at the end with fewer lines, so that figures do not cover each other
    const isAtStart = edges.filter((each) => each.from === edge.from).length < edges.filter((each) => each.to === edge.to).length;
    // and on the side that the line does not come from
    const isBelow = isAtStart ? target.y < from.y : from.y < target.y;
    const place = { class: "flow", y: (isAtStart ? from.y : target.y) + (isBelow ? 17 : -8) };
    const label = isAtStart
      ? svg("text", { ...place, x: x1 + 8 })
      : svg("text", { ...place, x: x2 - 8, "text-anchor": "end" });
    lines.append(svg("g", { class: edge.role === "fallback" ? "edge fallback" : "edge" }, full, svg("path", { d, class: "reach" }), line));
    figures.append(label);
    return { ...edge, full, line, label };
  }

  #attend(id) {
    const part = id === null ? null : this.parts.get(id);
    for (const edge of this.edges) {
      edge.line.parentNode.classList.toggle("near", part !== null && (edge.from === id || edge.to === id));
    }
    this.describe(part?.node ?? null);
  }

  #fill({ traffic }, node) {
    const part = this.parts.get(`${node.kind}:${node.key}`);
    part.node = node;
    const sum = sumOf(traffic, node);
    const facts = [rate(sum.rate)];
    if (sum.errors) facts.push(`${share(sum.errors, sum.requests)} failed`);
    if (sum.rejected) facts.push(`${share(sum.rejected, sum.requests)} rejected`);
    if (sum.requests) facts.push(seconds(sum.quantile(0.5)));
    const backend = node.kind === "backend" ? traffic.now?.backends[node.key] : null;
    if (backend?.waiting) facts.push(`${count(backend.waiting)} waiting`);
    const inFlight = inFlightOf(traffic, node);
    if (inFlight) facts.push(`${count(inFlight)} in flight`);
    const text = facts.join(" · ");
    setText(part.numbers, fitted(text, WIDTH - 20, "12px"));
    const state = stateOf(traffic, node, sum);
    part.state.setAttribute("class", `state ${state}`);
    const label = `${node.kind} ${node.name}, ${node.text}: ${text}${state === "ok" || state === "" ? "" : `, ${state}`}`;
    setText(part.full, label); // the accessible name of the link, and its tooltip
  }

  #flow(traffic, edge) {
    const sum = sumOfEdge(traffic, edge);
    const isLive = sum.requests > 0;
    edge.line.setAttribute("class", isLive ? `line live ${trouble(sum)}` : "line");
    edge.line.style.strokeWidth = isLive ? String(1.5 + Math.min(6, 1.6 * Math.log10(1 + 10 * sum.rate))) : "";
    setText(edge.label, isLive ? rate(sum.rate) : "");
    const facts = [rate(sum.rate), `${share(sum.errors, sum.requests)} failed`, `${share(sum.rejected, sum.requests)} rejected`, `median ${seconds(sum.quantile(0.5))}`];
    setText(edge.full, `${nameOf(edge.from)} → ${nameOf(edge.to)}\n${facts.join(" · ")}`);
  }
}

/** The class of a line with failing requests: some, or at least half of them. */
function trouble({ errors, requests }) {
  if (!errors) return "";
  return 2 * errors < requests ? "troubled" : "failing";
}

const nameOf = (id) => split(id)[1].split("\u0000").pop();

function filtered(nodes, words) {
  if (!words.length) return nodes;
  const matches = (node) => words.every((word) => `${node.name} ${node.text}`.toLowerCase().includes(word));
  const routes = nodes.route.filter(
    (node) =>
      matches(node) ||
      node.about.backends.some((each) => words.every((word) => each.name.toLowerCase().includes(word))) ||
      node.about.listeners.some((each) => words.every((word) => each.toLowerCase().includes(word))),
  );
  const listeners = new Set(routes.flatMap(({ about }) => about.listeners));
  const backends = new Set(routes.flatMap(({ about }) => about.backends.map((each) => each.name)));
  return {
    listener: nodes.listener.filter((each) => listeners.has(each.key)),
    route: routes,
    backend: nodes.backend.filter((each) => backends.has(each.key)),
    endpoint: nodes.endpoint.filter((each) => backends.has(each.backend)),
  };
}

export function inFlightOf(traffic, node) {
  if (node.kind === "listener") return traffic.now?.listeners[node.key]?.in_flight ?? 0;
  if (node.kind === "endpoint") return node.about.in_flight;
  if (node.kind === "backend") return callsOf(traffic.now?.backends[node.key]);
  return 0;
}

export const callsOf = (backend) => (backend?.endpoints ?? []).reduce((sum, each) => sum + each.in_flight, 0);

/** The state of an endpoint in a word; for a drained endpoint, the progress of the drain. */
export const wordOf = (endpoint) => endpoint.drain ?? endpoint.state;

/** The state of a node: `ok`, `degraded`, `down`, or empty if unknown. */
export function stateOf(traffic, node, sum) {
  if (node.kind === "endpoint" && node.about.drain) return node.about.state === "down" ? "down" : "degraded";
  if (node.kind === "endpoint") return node.about.state === "up" ? "ok" : node.about.state === "unknown" ? "" : node.about.state;
  if (node.kind === "backend") {
    const now = traffic.now?.backends[node.key];
    const states = (now?.endpoints ?? []).map((each) => each.state);
    if (!states.length && now?.starts_servers) return "";
    if (!states.length || states.every((each) => each === "down")) return "down";
    if (states.some((each) => each === "down" || each === "degraded")) return "degraded";
    return states.every((each) => each === "unknown") ? "" : "ok";
  }
  if (!sum.requests) return "";
  return sum.errors ? (sum.errors === sum.requests ? "down" : "degraded") : "ok";
}
