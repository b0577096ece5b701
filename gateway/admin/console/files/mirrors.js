// The results of the routes' mirrors: counts of compared responses, and the last differences.

import { ask } from "./api.js";
import { html } from "./dom.js";
import { NONE, count, dateTime, seconds, share, time } from "./format.js";
import { plainTable } from "./table.js";

const HEADINGS = ["Route", "Mirrored to", "Share", "Equal", "Different", "Failed", "Dropped", "Mean, own", "Mean, mirror"];

export class Mirrors {
  constructor(attempt) {
    this.attempt = attempt;
    this.element = html("section", { class: "mirrors", "aria-label": "Mirrors", hidden: true });
    this.shown = "";
  }

  /** Query the counts, if a route has a mirror. */
  async update({ topology }) {
    const has = topology.routes.some((each) => each.policies.includes("mirror"));
    this.element.hidden = !has;
    if (!has) return;
    const reply = await this.attempt(() => ask("../status"));
    if (!reply) return;
    const found = reply.value.policies.filter((each) => each.policy === "mirror");
    const text = JSON.stringify(found);
    if (text === this.shown || this.element.contains(document.activeElement)) return;
    this.shown = text;
    this.element.replaceChildren(html("h2", {}, "Mirrors"), counts(found), ...found.flatMap(differences));
  }
}

function counts(found) {
  const rows = found.map(({ place, state }) => {
    const { expected, actual } = state.mean_seconds ?? {};
    const texts = [place, state.backend, share(state.sample, 1), count(state.equal), count(state.different), count(state.failed), count(state.dropped), seconds(expected ?? null), seconds(actual ?? null)];
    return texts.map((each, at) => (at === 4 && state.different ? html("span", { class: "badge down" }, each) : each));
  });
  return plainTable({ label: "Counts of mirrors", headings: HEADINGS, names: HEADINGS.map((_, at) => (at > 1 ? "number" : undefined)), rows });
}

function differences({ place, state }) {
  const reasons = Object.entries({ ...state.failures, ...state.drops }).map(([name, each]) => `${name} ${count(each)}`);
  const rows = state.last_differences.map((each) => [
    html("time", { datetime: each.at, title: dateTime(each.at) }, time(each.at)), each.model || NONE, each.text, html("code", {}, each.request_id || NONE)]);
  return [
    reasons.length ? html("p", { class: "muted" }, `${place} to ${state.backend}, failed or dropped: ${reasons.join(", ")}`) : null,
    rows.length ? plainTable({
      label: `Last differences of ${place}`, caption: `Last differences of ${place} to ${state.backend}`,
      headings: ["Time", "Model", "Difference", "Request id"], names: [undefined, undefined, "wide"], rows,
    }) : null,
  ].filter(Boolean);
}
