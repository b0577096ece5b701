// The model graphs: a drawing of the steps and tensors of each graph, with the current calls of each step.

import { change, read, to } from "./address.js";
import { ask } from "./api.js";
import { html, setText, svg } from "./dom.js";
import { NONE, count, rate, seconds, share, shortened } from "./format.js";
import { Table } from "./table.js";

const LETTERS = 26;
const LINE = 16;
const UNCALLED = { calls: 0, errors: 0, cancelled: 0, seconds: 0 };

export function show(root, { attempt }) {
  const choice = html("select", { "aria-label": "Model", change: () => change({ model: choice.value }) });
  const about = html("p", { class: "muted" });
  const drawing = html("div", { class: "drawing scroll", role: "region", "aria-label": "Steps and tensors", tabindex: "0" });
  const table = new Table({
    label: "Steps",
    key: (row) => row.name,
    empty: "No step was called here.",
    columns: [
      { id: "name", title: "Step", text: (row) => row.name },
      { id: "model", title: "Model", text: (row) => row.model },
      figure("rate", "Rate", (row) => rate(row.rate), (row) => row.rate ?? -1, "per second"),
      figure("failed", "Failed", (row) => share(row.errors, row.calls), (row) => (row.calls ? row.errors / row.calls : -1), "share"),
      figure("cancelled", "Cancelled", (row) => count(row.cancelled), (row) => row.cancelled),
      figure("mean", "Mean", (row) => seconds(row.mean), (row) => row.mean ?? -1, "s"),
      figure("total", "Total", (row) => count(row.calls), (row) => row.calls),
    ],
  });
  root.append(html("h1", {}, "Graphs"), html("div", { class: "controls" }, choice), about, drawing, table.element);

  let graphs = [];
  let numbers = new Map(); // the text in the box of each step
  let before = null;
  let drawnTag = null;
  let isAsking = false;

  function draw() {
    const graph = chosen();
    about.replaceChildren(...(graph
      ? [graph.description, " ", html("a", { href: to("playground", { model: graph.name }) }, "Try it in the playground")]
      : ["The configuration has no model graphs (`models`)."]));
    drawing.hidden = !graph;
    choice.parentElement.hidden = graphs.length < 2;
    if (!graph) return;
    choice.value = graph.name;
    numbers = new Map();
    drawing.replaceChildren(pictureOf(graph, numbers));
  }

  const chosen = () => graphs.find((each) => each.name === read().parameters.get("model")) ?? graphs[0];

  function tell(steps, passed) {
    const graph = chosen();
    if (!graph) return;
    const now = steps[graph.name] ?? {};
    const earlier = before?.steps[graph.name] ?? {};
    const rows = graph.boxes.filter((each) => each.kind === "step").map((box) => rowOf(box, now[box.name], earlier[box.name], passed));
    for (const row of rows) {
      const [text, node] = numbers.get(row.name) ?? [];
      if (!text) continue;
      setText(text, row.rate === null ? "" : `${rate(row.rate)}, ${row.mean === null ? NONE : seconds(row.mean)}`);
      node.classList.toggle("failing", row.failing);
    }
    table.update(rows);
  }

  async function load(tag) {
    if (isAsking) return;
    isAsking = true;
    if (tag !== drawnTag) {
      const found = await attempt(() => ask("graphs"));
      if (found) {
        graphs = found.value.graphs;
        choice.replaceChildren(...graphs.map((each) => html("option", { value: each.name }, each.name)));
        [drawnTag, before] = [tag, null];
        draw();
      }
    }
    const found = graphs.length ? await attempt(() => ask("graphs/traffic")) : null;
    isAsking = false;
    if (!found) return;
    const at = performance.now();
    tell(found.value.steps, before ? (at - before.at) / 1000 : 0);
    before = { at, steps: found.value.steps };
  }

  return {
    update: ({ topology }) => load(`${topology.loaded_at} ${topology.reloads}`),
    moved: () => {
      draw();
      if (before) tell(before.steps, 0);
    },
  };
}

function figure(id, title, text, value, unit) {
  return { id, title, text, value, unit, number: true };
}

/** A step with its calls since the previous poll. After a reload, the counts start again. */
function rowOf(box, now = UNCALLED, earlier = UNCALLED, passed = 0) {
  const from = now.calls >= earlier.calls ? earlier : UNCALLED;
  const calls = now.calls - from.calls;
  return {
    name: box.name,
    model: box.lines[1],
    calls: now.calls,
    errors: now.errors,
    cancelled: now.cancelled,
    rate: passed ? calls / passed : null,
    mean: calls && passed ? (now.seconds - from.seconds) / calls : now.calls ? now.seconds / now.calls : null,
    failing: now.errors > from.errors,
  };
}

function pictureOf(graph, numbers) {
  const height = graph.height + LINE;
  const whole = svg("svg", {
    class: "graph", viewBox: `0 0 ${graph.width} ${height}`, width: graph.width, height, role: "img",
    "aria-label": `The steps of ${graph.name}; the table below has the same figures`,
  });
  whole.style.minWidth = `${Math.min(graph.width, 900)}px`; // a smaller drawing would be unreadable
  whole.append(svg("defs", {}, svg("marker", {
    id: "graph-tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto",
  }, svg("path", { class: "tip", d: "M1 1 7 4 1 7" }))));
  for (const arrow of graph.arrows) whole.append(...arrowOf(arrow));
  for (const box of graph.boxes) whole.append(boxOf(box, numbers));
  return whole;
}

function arrowOf({ label, points }) {
  const line = points.slice(1).reduce((path, [x, y], at) => {
    const [fromX, fromY] = points[at];
    const bend = (fromX + x) / 2;
    return `${path} C${bend} ${fromY} ${bend} ${y} ${x} ${y}`;
  }, `M${points[0].join(" ")}`);
  // in the first lane, where no other line crosses it, as in the SVG of `gateway graph`
  const [[x, y], [toX, toY]] = points.length > 2 ? points.slice(1, 3) : points;
  return [
    svg("path", { class: "arrow", d: line, "marker-end": "url(#graph-tip)" }, svg("title", {}, label)),
    svg("text", { class: "label", x: (x + toX) / 2, y: (y + toY) / 2 - 4, "text-anchor": "middle" }, ...cut(label)),
  ];
}

/** A text, shortened to fit, with the full text as a tooltip. */
function cut(text) {
  const fitting = shortened(text, LETTERS);
  return fitting === text ? [text] : [fitting, svg("title", {}, text)];
}

function boxOf(box, numbers) {
  const text = svg("text", { class: "live", x: box.x + box.width - 8, y: box.y + 18, "text-anchor": "end" });
  const node = svg("g", { class: `graph-box ${box.kind}` },
    svg("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: box.kind === "step" ? 4 : 18 }),
    ...box.lines.map((line, at) =>
      svg("text", { class: at ? "small" : "title", x: box.x + 10, y: box.y + 18 + LINE * at }, ...cut(line))),
    text);
  if (box.kind === "step") numbers.set(box.name, [text, node]);
  return node;
}
