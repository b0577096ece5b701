// A line chart over time, with round numbers on the axes, a legend with values, and a line at the pointer.

import { html, setText, svg } from "./dom.js";
import { NONE } from "./format.js";

const HEIGHT = 170; // pixels, like the width: a chart is drawn at the width at which it is shown
const LEFT = 56;
const RIGHT = 12;
const TOP = 8;
const BOTTOM = 22;
const ROUND = [1, 2, 5, 10];
const TIME_STEPS = [60, 120, 300, 600, 900]; // seconds between two times on the axis

/** The smallest round step for which at most `most` steps reach `value`. */
export function roundStep(value, most, least = 0) {
  const wanted = Math.max(value / most, least, 1e-9);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return ROUND.find((each) => each * power >= wanted * 0.999999) * power;
}

export const clock = (unix, parts = { hour: "2-digit", minute: "2-digit" }) =>
  new Date(1000 * unix).toLocaleTimeString(undefined, { hourCycle: "h23", ...parts });
export const exactClock = (unix) => clock(unix, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export class Chart {
  /**
   * `lines`: `{name, title, of(history, at)}` for each line; the last one is drawn on top. `text(value)`: the value for
   * display, `tick(value, most)`: the value on the axis, `least`: the smallest step between two axis values.
   * `choose(from, to)` is called with the two Unix times of the range that the user selects with the pointer.
   */
  constructor({ title, lines, text, tick, least = 0 }, choose) {
    Object.assign(this, { title, lines, text, tick, least, choose });
    this.values = lines.map((each) => html("span", { class: "value" }));
    this.when = html("span", { class: "muted when" });
    const legend = html("ul", { class: "legend" }, ...lines.map((each, at) =>
      html("li", {}, svg("svg", { class: "swatch", viewBox: "0 0 22 10", "aria-hidden": "true" }, svg("path", { class: `line ${each.name}`, d: "M1 5h20" })), ` ${each.title} `, this.values[at])));
    this.drawing = svg("svg", { role: "img", pointermove: (event) => this.#point(event), pointerleave: () => this.#leave(),
      pointerdown: (event) => this.#press(event), pointerup: () => this.#release() });
    this.element = html("figure", { class: "chart panel" }, html("figcaption", {}, html("h3", {}, title), this.when), legend, this.drawing);
    this.pointed = null;
    this.pressed = null; // the time on the axis where the pointer was pressed
    this.shown = null;
    new ResizeObserver(() => this.#draw()).observe(this.drawing);
  }

  /** Show the steps of `history` (from /api/history) between two Unix times. `range` describes the range in words. */
  update(history, from, to, range) {
    const steps = history.times.map((_, at) => at).filter((at) => history.times[at] > from && history.times[at] <= to);
    const columns = this.lines.map((line) => steps.map((at) => line.of(history, at)));
    this.shown = { times: steps.map((at) => history.times[at]), columns, from, to, range, step: history.step, last: to < history.times.at(-1) ? "at the end" : "now" };
    this.#draw();
  }

  #draw() {
    const width = this.drawing.clientWidth;
    if (!width || !this.shown) return;
    const { times, columns, from, to } = this.shown;
    const highest = Math.max(...columns.flat().map((each) => each ?? 0), 0);
    const step = highest ? roundStep(highest, 4, this.least) : 1; // without any counts, every scale is right
    const most = Math.max(step, Math.ceil(highest / step - 1e-9) * step);
    const x = (time) => LEFT + ((width - LEFT - RIGHT) * (time - from)) / (to - from);
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / most;
    this.place = { x, width };
    this.cursor = svg("path", { class: "cursor", d: "" });
    this.selection = svg("path", { class: "selection", d: "" });
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.setAttribute("aria-label", this.#described());
    this.drawing.replaceChildren(
      ...this.#values(step, most, y, width),
      ...this.#times(x, width),
      this.selection,
      ...columns.map((values, at) => svg("path", { class: `line ${this.lines[at].name}`, d: this.#path(times, values, x, y) })),
      this.cursor,
    );
    this.#tell();
  }

  #values(step, most, y, width) {
    const marks = [];
    for (let at = 0; at * step <= most * 1.000001; at += 1) {
      const value = at * step;
      marks.push(
        svg("path", { class: at ? "grid" : "axis", d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` }),
        svg("text", { x: LEFT - 8, y: (y(value) + 4).toFixed(1), "text-anchor": "end" }, value ? this.tick(value, most) : "0"),
      );
    }
    return marks;
  }

  #times(x, width) {
    const { from, to } = this.shown;
    const fits = Math.max(2, Math.floor((width - LEFT - RIGHT) / 60));
    const step = TIME_STEPS.find((each) => (to - from) / each <= fits) ?? 1800;
    const marks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const at = x(time).toFixed(1);
      marks.push(svg("path", { class: "axis", d: `M${at} ${HEIGHT - BOTTOM}v4` }));
      // a label at the edge would be cut off
      if (x(time) > LEFT + 12 && x(time) < width - 18) marks.push(svg("text", { x: at, y: HEIGHT - 5, "text-anchor": "middle" }, clock(time)));
    }
    return marks;
  }

  /** A line with gaps where a value or a step is missing. */
  #path(times, values, x, y) {
    let before = null;
    return values.map((value, at) => {
      if (value === null) {
        before = null;
        return "";
      }
      const isNext = before !== null && times[at] - before < 3 * this.shown.step;
      before = times[at];
      // `h0` draws a single value as a dot
      return `${isNext ? "L" : "M"}${x(times[at]).toFixed(1)} ${y(value).toFixed(1)}${isNext ? "" : "h0"}`;
    }).join("");
  }

  #press(event) {
    if (event.button !== 0 || this.pointed === null) return;
    event.preventDefault(); // do not select text
    this.pressed = this.pointed;
  }

  #release() {
    const [from, to] = [this.pressed, this.pointed];
    this.#leave();
    if (from !== null && to !== null && from !== to) this.choose(Math.min(from, to), Math.max(from, to));
  }

  #leave() {
    this.pressed = null;
    this.#point(null);
  }

  #point(event) {
    const { times } = this.shown ?? { times: [] };
    this.pointed = null;
    if (event && times.length) {
      const at = event.clientX - this.drawing.getBoundingClientRect().left;
      const distances = times.map((time) => Math.abs(this.place.x(time) - at));
      this.pointed = times[distances.indexOf(Math.min(...distances))];
    }
    this.#tell();
  }

  /** Show the values at the pointer, or else the last values. */
  #tell() {
    const { times, columns } = this.shown ?? { times: [], columns: [] };
    const found = this.pointed === null ? -1 : times.indexOf(this.pointed);
    const at = found < 0 ? times.length - 1 : found;
    for (const [line, node] of this.values.entries()) setText(node, this.#text(columns[line]?.[at]));
    setText(this.when, at < 0 ? "" : exactClock(times[at]));
    const isDrawn = this.pressed !== null && found >= 0;
    this.selection?.setAttribute("d", isDrawn ? `M${this.place.x(this.pressed).toFixed(1)} ${TOP}H${this.place.x(times[at]).toFixed(1)}V${HEIGHT - BOTTOM}H${this.place.x(this.pressed).toFixed(1)}Z` : "");
    this.cursor?.setAttribute("d", found < 0 ? "" : `M${this.place.x(times[at]).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}`);
  }

  #text(value) {
    return value === null || value === undefined ? NONE : this.text(value);
  }

  #described() {
    const { times, columns, range, last } = this.shown;
    const told = this.lines.map((line, at) => {
      const known = columns[at].filter((each) => each !== null);
      if (!known.length) return `${line.title}: none`;
      const highest = Math.max(...known);
      return `${line.title}: ${this.#text(columns[at].at(-1))} ${last}, at most ${this.text(highest)} at ${clock(times[columns[at].indexOf(highest)])}`;
    });
    return `${this.title}, ${range}. ${told.join("; ")}.`;
  }
}
