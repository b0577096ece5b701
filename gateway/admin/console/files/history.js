// The last hour of the gateway, or of one listener, route or backend, as charts and as a table.

import { change, read } from "./address.js";
import { ask } from "./api.js";
import { Chart, clock, exactClock } from "./chart.js";
import { csvButton } from "./csv.js";
import { html, setText } from "./dom.js";
import { NONE, count, rate, seconds } from "./format.js";

const RANGES = [["5m", "the last 5 minutes", 300], ["15m", "the last 15 minutes", 900], ["1h", "the last hour", 3600]];
const USUAL = "15m";
const CHOSEN = "chosen"; // the range between the parameters `from` and `to` of the address
const DAY = 86_400; // seconds
const SAVED = ["times", "seconds", "requests", "errors", "median", "p95", "p99", "in_flight", "waiting", "queue", "server", "gateway"];

const perSecond = (row) => (history, at) => history[row][at] / history.seconds[at];
const value = (row) => (history, at) => history[row][at];
const plain = (number) => String(Number(number.toPrecision(3)));
const length = (number, most) => (most < 1 ? `${plain(1000 * number)} ms` : `${plain(number)} s`);

const LINES = {
  requests: { name: "requests", title: "All", of: perSecond("requests") },
  errors: { name: "errors", title: "Failed", of: perSecond("errors") },
  p99: { name: "p99", title: "99 %", of: value("p99") },
  p95: { name: "p95", title: "95 %", of: value("p95") },
  median: { name: "median", title: "Median", of: value("median") },
  inFlight: { name: "in-flight", title: "In flight", of: value("in_flight") },
  waiting: { name: "waiting", title: "Waiting", of: value("waiting") },
};
const CHARTS = [
  { title: "Requests per second", lines: [LINES.requests], text: rate, tick: plain },
  { title: "Failed requests per second", lines: [LINES.errors], text: rate, tick: plain },
  { title: "Latency", lines: [LINES.p99, LINES.p95, LINES.median], text: seconds, tick: length },
  { title: "In flight and waiting, at most", lines: [LINES.inFlight, LINES.waiting], text: count, tick: count, least: 1 },
];
const HEADINGS = ["Until", "Requests", "Failed", "Median", "95 %", "99 %", "In flight", "Waiting"];

export class History {
  /** `kind` and `name` are as in /api/history; empty for the whole gateway. `stages`: the Stages for the same range. */
  constructor(attempt, kind = "", name = "", stages = null) {
    this.attempt = attempt;
    this.stages = stages;
    this.query = kind ? `?${new URLSearchParams({ kind, name })}` : "";
    // requests in flight are counted per listener and backend, not per route
    const shown = CHARTS.filter((each) => kind !== "route" || !each.lines.includes(LINES.inFlight));
    this.charts = shown.map((each) => new Chart(each, (from, to) => this.#between(from, to)));
    this.range = html("select", { id: "history-range", change: () => this.#choose() }, ...[...RANGES, [CHOSEN, "a range"]].map(([id, title]) => html("option", { value: id }, title)));
    [this.from, this.to] = ["From", "To"].map((title) => html("input", { type: "time", "aria-label": title, change: () => this.#typed() }));
    this.bounds = html("span", { class: "controls", hidden: true }, this.from, html("span", {}, "to"), this.to);
    this.note = html("p", { class: "muted", role: "status" });
    this.rows = html("tbody");
    const table = html("table", {}, html("caption", {}, "Each row is a step of about ten seconds. The columns In flight and Waiting show the maximum in the step."),
      html("thead", {}, html("tr", {}, ...HEADINGS.map((each) => html("th", { scope: "col", class: each === "Until" ? undefined : "number" }, each)))), this.rows);
    this.table = html("details", { toggle: () => this.#draw() }, html("summary", {}, "Show as a table"),
      html("div", { class: "scroll values", role: "region", "aria-label": "History as a table", tabindex: "0" }, table));
    this.element = html("section", { class: "history", "aria-labelledby": "history-title" },
      html("div", { class: "controls" }, html("h2", { id: "history-title" }, "History"), html("label", { for: "history-range" }, "Show"), this.range, this.bounds,
        csvButton("history", ["history", kind, name].filter(Boolean).join("-").replace(/[^\w.-]+/g, "_"), () => this.#saved())),
      this.note,
      html("div", { class: "charts" }, this.stages?.element, ...this.charts.map((each) => each.element)),
      this.table);
    this.history = null;
    this.asked = -Infinity;
  }

  /** Query the gateway if a step could have ended since the last query. */
  async update() {
    const now = performance.now();
    const fresh = 1000 * (this.history?.step ?? 10);
    const isYoung = (this.history?.times.length ?? 0) < 2; // wait for the first steps after the gateway's start
    if (now - this.asked < (isYoung ? 2000 : fresh) - 500) return;
    this.asked = now;
    const reply = await this.attempt(() => ask("history", this.query));
    if (!reply) {
      this.asked = -Infinity;
      return;
    }
    if (reply.changed || !this.history) {
      this.history = reply.value;
      this.#draw();
    }
  }

  /** The range in the address: `{id, title, from, to}`; `from` and `to` are Unix times. */
  #chosen() {
    const { parameters } = read();
    const end = this.history?.times.at(-1) ?? Date.now() / 1000;
    const [from, to] = ["from", "to"].map((name) => Number(parameters.get(name)));
    if (parameters.get("range") === CHOSEN && from < to) {
      return { id: CHOSEN, title: `${exactClock(from)} to ${exactClock(to)}`, from, to };
    }
    const [id, title, seconds] = RANGES.find(([each]) => each === parameters.get("range")) ?? RANGES.find(([each]) => each === USUAL);
    return { id, title, from: end - seconds, to: end };
  }

  #choose() {
    if (this.range.value === CHOSEN) {
      const { from, to } = this.#chosen();
      this.#between(from, to);
    } else {
      change({ range: this.range.value, from: "", to: "" });
      this.#draw();
    }
  }

  /** Show the range between two Unix times. */
  #between(from, to) {
    change({ range: CHOSEN, from: Math.round(from), to: Math.round(to) });
    this.#draw();
  }

  /** Read the times that the user typed, as times of the last 24 hours. */
  #typed() {
    const end = this.history?.times.at(-1) ?? Date.now() / 1000;
    const [from, to] = [this.from, this.to].map(({ value }) => {
      const [hours, minutes] = value.split(":").map(Number);
      const at = new Date(1000 * end).setHours(hours, minutes, 0, 0) / 1000;
      return at > end + 60 ? at - DAY : at;
    });
    const isWrong = !(from < to);
    for (const each of [this.from, this.to]) each.setCustomValidity(isWrong ? "The first time must be earlier than the second." : "");
    if (isWrong) this.to.reportValidity();
    else this.#between(from, to);
  }

  #draw() {
    const { id, title, from, to } = this.#chosen();
    this.range.value = id;
    this.bounds.hidden = id !== CHOSEN;
    if (id === CHOSEN) for (const [input, time] of [[this.from, from], [this.to, to]]) if (document.activeElement !== input) input.value = clock(time);
    if (!this.history) return;
    const { times } = this.history;
    const isEmpty = id === CHOSEN && times.length && !times.some((each) => each > from && each <= to);
    setText(this.note, isEmpty ? "The gateway has no history for this range, because it keeps only the last hour." : times.length ? "" : "The first ten seconds have not passed yet.");
    for (const each of this.charts) each.update(this.history, from, to, title);
    this.stages?.tellHistory(this.history, from, to, title);
    if (this.table.open) this.#fill(from, to);
  }

  /** The steps of the range for the CSV file, with the names and units of the API. */
  #saved() {
    const { from, to } = this.#chosen();
    const { history } = this;
    const steps = (history?.times ?? []).map((_, at) => at).filter((at) => history.times[at] > from && history.times[at] <= to);
    const rows = steps.map((at) => SAVED.map((name) => (name === "times" ? new Date(1000 * history.times[at]).toISOString() : history[name]?.[at] ?? "")));
    return [["until", ...SAVED.slice(1)], ...rows];
  }

  #fill(from, to) {
    const { history } = this;
    const told = (at, row, text) => (history[row][at] === null ? NONE : text(history[row][at]));
    const rows = history.times.map((time, at) => [
      exactClock(time), count(history.requests[at]), count(history.errors[at]), told(at, "median", seconds),
      told(at, "p95", seconds), told(at, "p99", seconds), told(at, "in_flight", count), told(at, "waiting", count),
    ]).filter((_, at) => history.times[at] > from && history.times[at] <= to).reverse();
    this.rows.replaceChildren(...rows.map((row) =>
      html("tr", {}, ...row.map((text, at) => html("td", { class: at ? "number" : undefined }, text)))));
  }
}
