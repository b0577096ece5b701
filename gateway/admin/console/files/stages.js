// The time that requests spend in queues, at model servers and in the gateway, as a bar and as a table.

import { html, setText, svg } from "./dom.js";
import { count, moment, seconds, share } from "./format.js";

/** The stages that add up to the whole time, with their names in /api/history and /api/summary, and parts of the last stage. */
export const STAGES = [["queue", "waiting in the queue"], ["server", "at the model server"], ["gateway", "in the gateway"]];
const PARTS = [["reading", "decoding requests"], ["writing", "encoding responses"]];
const HEADINGS = ["Stage", "Share", "Mean", "Median", "99 %"];

export const swatch = (name) =>
  svg("svg", { class: "swatch spent", viewBox: "0 0 22 10", "aria-hidden": "true" }, svg("rect", { class: name, width: 22, height: 10 }));

/** Fill `drawing` with the parts of a duration, `{queue, server, gateway}` in seconds. */
function drawBar(drawing, times) {
  const all = Math.max(STAGES.reduce((sum, [name]) => sum + (times[name] ?? 0), 0), 1e-12);
  let x = 0;
  drawing.replaceChildren(...STAGES.map(([name]) => {
    const width = (100 * (times[name] ?? 0)) / all;
    const part = svg("rect", { class: name, x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 10 });
    x += width;
    return part;
  }));
}

/** A bar that shows the parts of a duration. */
export function bar(times = {}) {
  const drawing = svg("svg", { class: "spent", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  drawBar(drawing, times);
  return drawing;
}

/** The mean times in the steps of `history` (from /api/history) that ended after `from`, and at `to` or before. */
function means(history, from, to) {
  const steps = history.times.map((_, at) => at).filter((at) => history.times[at] > from && history.times[at] <= to);
  const mean = (name) => {
    const known = steps.filter((at) => history[name][at] !== null);
    const requests = known.reduce((sum, at) => sum + history.requests[at], 0);
    return requests ? known.reduce((sum, at) => sum + history.requests[at] * history[name][at], 0) / requests : null;
  };
  return {
    requests: steps.reduce((sum, at) => sum + history.requests[at], 0),
    ...Object.fromEntries([...STAGES, ...PARTS].map(([name]) => [name, mean(name)])),
  };
}

export class Stages {
  /** `heading`: the element name of the title, such as `h2`. */
  constructor(heading) {
    this.bar = bar();
    this.note = html("p", { class: "muted" });
    this.cells = new Map();
    const rows = [...STAGES, ...PARTS].map(([name, title], at) => {
      const cells = HEADINGS.slice(1).map(() => html("td", { class: "number" }));
      this.cells.set(name, cells);
      const isPart = at >= STAGES.length;
      return html("tr", { class: isPart ? "inner" : undefined }, html("th", { scope: "row" }, isPart ? "" : swatch(name), ` ${title}`), ...cells);
    });
    const table = html("table", { "aria-label": "Time by stage" },
      html("thead", {}, html("tr", {}, ...HEADINGS.map((each, at) => html("th", { scope: "col", class: at ? "number" : undefined }, each)))),
      html("tbody", {}, ...rows));
    this.element = html("section", { class: "panel stages-of-time", "aria-label": "Time by stage" },
      html(heading, {}, "Time by stage"), this.bar, table, this.note);
    this.summary = null;
    this.past = null;
  }

  /** Show the means of a history between two Unix times. `range` describes the range in words. */
  tellHistory(history, from, to, range) {
    this.past = { range, ...means(history, from, to) };
    this.#draw();
  }

  /** Show a reply of /api/summary. */
  tellSummary(summary) {
    this.summary = summary;
    this.#draw();
  }

  #draw() {
    const { past, summary } = this;
    const mean = (name) => (past ? past[name] : summary.stages[name].mean);
    const times = Object.fromEntries([...STAGES, ...PARTS].map(([name]) => [name, mean(name)]));
    const all = STAGES.reduce((sum, [name]) => sum + (times[name] ?? 0), 0);
    drawBar(this.bar, times);
    for (const [name, cells] of this.cells) {
      const recent = summary?.stages[name];
      const texts = [share(times[name] ?? 0, all), seconds(times[name]), seconds(recent?.median ?? null), seconds(recent?.p99 ?? null)];
      texts.forEach((text, at) => setText(cells[at], text));
    }
    setText(this.note, [
      past && `Share and mean: ${count(past.requests)} requests in ${past.range}.`,
      summary && `${past ? "Median and 99 %" : "All figures"}: ${count(summary.requests)} requests among the last ${count(summary.of)} of the gateway${summary.since ? `, since ${moment(summary.since)}` : ""}.`,
      "Decoding and encoding times are measured for 1 in 16 requests.",
    ].filter(Boolean).join(" "));
  }
}
