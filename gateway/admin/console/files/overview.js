// The overview: figures for the whole gateway, and a drawing of the traffic.

import { change, read, to } from "./address.js";
import { html, setText, svg } from "./dom.js";
import { Drawing, inFlightOf, nodesOf } from "./drawing.js";
import { NONE, conditions, count, dateTime, rate, seconds, share } from "./format.js";
import { History } from "./history.js";

const FIGURES = [
  ["rate", "Requests", (now) => rate(now.rate)],
  ["errors", "Errors", (now) => rate(now.errors)],
  ["median", "Median latency", (now) => seconds(now.median)],
  ["slow", "99th percentile", (now) => seconds(now.slow)],
  ["inFlight", "In flight", (now) => count(now.inFlight)],
  ["waiting", "Waiting", (now) => count(now.waiting)],
];

const TILES = 900; // seconds that the lines in the tiles cover

/** The points of the tiles: the steps that the gateway stores, and the current values. If the gateway has just started, the
 * finer values that this page has polled. */
function pointsOf(kept, live) {
  const now = live.at(-1);
  const until = kept?.times.at(-1);
  if (!until || !now) return live;
  const steps = kept.times.map((time, at) => ({
    time: time - until, rate: kept.requests[at] / kept.seconds[at], errors: kept.errors[at] / kept.seconds[at],
    median: kept.median[at], slow: kept.p99[at], inFlight: kept.in_flight[at], waiting: kept.waiting[at],
  })).filter(({ time }) => time > -TILES);
  if (-(steps[0]?.time ?? 0) < now.time - live[0].time) return live;
  // Rates and latencies need two readings. Until the second reading, use the values of the last step.
  const current = now.rate === null && steps.length ? { ...steps.at(-1), inFlight: now.inFlight, waiting: now.waiting } : now;
  return [...steps, { ...current, time: Math.max(0, Date.now() / 1000 - until) }];
}

class Figure {
  constructor(name, title, text) {
    this.name = name;
    this.text = text;
    this.value = html("span", { class: "value" }, NONE);
    this.line = svg("path", { d: "" });
    const chart = svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true", class: `spark ${name}` }, this.line);
    this.scale = html("span", { class: "scale" });
    this.element = html("div", { class: "figure" }, html("dt", {}, title), html("dd", {}, this.value, chart, this.scale));
  }

  update(history) {
    const now = history[history.length - 1];
    setText(this.value, now ? this.text(now) : NONE);
    const values = history.map((point) => point[this.name]);
    const most = Math.max(...values, 1e-9);
    const range = values.some((value) => value !== null) ? [`0 to ${this.text({ [this.name]: Math.max(...values) })}`] : [];
    setText(this.scale, history.length > 1 ? [...range, spanOf(history)].join(", ") : "");
    const step = 100 / Math.max(values.length - 1, 1);
    let pen = "M"; // the pen moves without drawing where a value is missing, such as a latency without requests
    const parts = values.map((value, at) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const part = `${pen}${(at * step).toFixed(1)} ${(23 - (22 * value) / most).toFixed(1)}`;
      pen = "L";
      return part;
    });
    this.line.setAttribute("d", parts.join(""));
  }
}

/** The time range of the lines, as text. */
function spanOf(history) {
  const seconds = Math.round(history.at(-1).time - history[0].time);
  return seconds < 100 ? `last ${seconds} s` : `last ${Math.round(seconds / 60)} min`;
}

export function show(root, { attempt }) {
  const history = new History(attempt);
  const figures = FIGURES.map((each) => new Figure(...each));
  const about = html("dl", { class: "facts" });
  const title = html("h2", {}, "Everything");
  const back = html("a", { href: to("overview"), hidden: true }, "Show everything");
  const details = html("section", { class: "panel details", "aria-labelledby": "about" }, title, about, back);
  title.id = "about";
  let hovered = null;
  let chosen = null;
  let model = null;
  const drawing = new Drawing((node) => {
    hovered = node;
    describe();
  });
  drawing.element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chosen) location.hash = to("overview");
  });
  const filter = html("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter the drawing", spellcheck: "false",
    autocomplete: "off", value: read().parameters.get("filter") ?? "",
    input: () => {
      change({ filter: filter.value });
      if (model) update(model);
    },
  });

  function describe() {
    if (!model) return;
    const node = hovered ?? chosen;
    const fresh = node && nodesOf(model)[node.kind].find((each) => each.key === node.key);
    setText(title, fresh ? fresh.name : "Everything");
    write(about, fresh ? factsOf(model.traffic, fresh) : factsOfAll(model));
    back.hidden = !chosen;
  }

  function update(given) {
    model = given;
    tell();
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    chosen = drawing.update(model, read().parameters.get("at") ?? "", words);
    describe();
    history.update().then(tell);
  }

  function tell() {
    const points = pointsOf(history.history, model.traffic.history);
    for (const figure of figures) figure.update(points);
  }

  root.append(
    html("h1", {}, "Overview"),
    html("dl", { class: "figures", "aria-label": "Now" }, ...figures.map((each) => each.element)),
    html("div", { class: "controls" }, filter, html("span", { class: "muted" }, "Rates and latencies cover the last 10 seconds.")),
    html("div", { class: "flows" }, html("div", { class: "canvas" }, drawing.element, drawing.note), details),
    history.element,
  );
  return { update };
}

function factsOfAll({ topology, traffic }) {
  const sum = traffic.groups?.all ?? traffic.nothing;
  return [
    ...factsOfSum(sum),
    ["Listeners", count(topology.listeners.length)],
    ["Routes", count(topology.routes.length)],
    ["Backends", count(topology.backends.length)],
    ["Configuration read", dateTime(topology.loaded_at)],
    ["Reloads", count(topology.reloads)],
  ];
}

function factsOfSum(sum) {
  if (!sum) return [];
  return [
    ["Requests", `${rate(sum.rate)}, ${count(sum.total)} since the start`],
    ["Failed", `${share(sum.errors, sum.requests)} now, ${share(sum.totalErrors, sum.total)} since the start`],
    ["Rejected", `${share(sum.rejected, sum.requests)} now, ${share(sum.totalRejected, sum.total)} since the start`],
    ["Median, 95 %, 99 %", [0.5, 0.95, 0.99].map((part) => seconds(sum.quantile(part))).join(", ")],
  ];
}

function factsOf(traffic, node) {
  const sum = traffic.of(`${node.kind}s`, node.key);
  const facts = [["Kind", node.kind], ...factsOfSum(sum)];
  const inFlight = inFlightOf(traffic, node);
  if (node.kind === "listener") {
    const now = traffic.now.listeners[node.key];
    facts.push(["Address", node.about.address], ["Protocols", node.text], ["TLS", node.about.tls ? "yes" : "no"]);
    facts.push(["Credentials", node.about.auth ? "required" : "not required"], ["In flight", count(inFlight)]);
    if (now) facts.push(["Connections", `${count(now.connections)} open, ${count(now.refused)} refused`]);
  }
  if (node.kind === "route") {
    facts.push(["Name", node.key]);
    if (node.about.match) facts.push(["Matches", conditions(node.about.match)]);
    facts.push(["Listeners", node.about.listeners.join(", ") || NONE]);
    facts.push(["Backends", node.about.backends.map(roleOf).join(", ")]);
    if (node.about.policies.length) facts.push(["Policies", node.about.policies.join(", ")]);
  }
  if (node.kind === "backend") {
    const now = traffic.now.backends[node.key];
    facts.push(["Protocol", [node.text, node.about.flavor].filter(Boolean).join(", ")]);
    if (now) {
      facts.push(["In flight", now.slots ? `${count(inFlight)} of ${count(now.slots)}` : count(inFlight)]);
      facts.push(["Waiting", now.queue ? `${count(now.waiting)} of ${count(now.queue)}` : "no limit on calls in flight"]);
      facts.push(["Endpoints", count(now.endpoints.length)]);
    }
    if (node.about.policies.length) facts.push(["Policies", node.about.policies.join(", ")]);
  }
  if (node.kind === "endpoint") {
    facts.push(["Backend", node.backend], ["State", node.text], ["In flight", count(inFlight)]);
    if (node.about.last_error) facts.push(["Last error", node.about.last_error]);
  }
  return facts;
}

export function roleOf({ name, role, weight }) {
  if (role === "fallback") return `${name} (fallback)`;
  return weight === null ? name : `${name} (weight ${weight})`;
}

function write(list, facts) {
  const wanted = facts.flat();
  const nodes = [...list.children];
  if (nodes.length !== wanted.length) {
    list.replaceChildren(...facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
  } else nodes.forEach((node, at) => setText(node, wanted[at]));
}
