// The model placement of backends: a table of models by servers, with buttons to change the placement.

import { change, read } from "./address.js";
import { ask, post } from "./api.js";
import { html, setText, twice } from "./dom.js";
import { wordOf } from "./drawing.js";
import { NONE, count, rate } from "./format.js";
import { Table } from "./table.js";

const COLORS = { held: "ok", loading: "", unloading: "", failed: "down" };

export function show(root, { attempt }) {
  const choice = html("select", { "aria-label": "Backend", change: () => { change({ backend: choice.value }); draw(); } });
  const note = html("p", { class: "muted" });
  const failed = html("p", { class: "error", role: "status" });
  const place = html("div", {});
  root.append(html("h1", {}, "Placement"), html("div", { class: "controls" }, choice), note, failed, place);

  let tables = {};
  let before = null; // the calls of each model at the previous poll, and its time
  let table = null;
  let drawnTag = "";
  let isAsking = false;

  const nameOf = () => (tables[read().parameters.get("backend")] ? read().parameters.get("backend") : Object.keys(tables)[0]);

  /** Have the gateway change a model at a server, and show the error if this fails. */
  async function act(action, model, server) {
    const backend = nameOf();
    try {
      await attempt(() => post("../placement", { backend, model, endpoint: server.address, do: action }), true);
      setText(failed, "");
    } catch (error) {
      setText(failed, `${model} at ${server.address}: ${error.message}`);
    }
    refresh();
  }

  function draw() {
    const name = nameOf();
    const shown = tables[name];
    choice.replaceChildren(...Object.keys(tables).map((each) => html("option", { value: each }, each)));
    choice.parentElement.hidden = Object.keys(tables).length < 2;
    setText(note, shown ? aboutOf(shown) : "No backend has `placement`.");
    if (!shown) return;
    choice.value = name;
    const tag = JSON.stringify([name, shown.can_load, shown.servers.map((each) => [each.address, headOf(each)])]);
    if (tag !== drawnTag) {
      drawnTag = tag;
      table = new Table({
        label: "Models by servers", key: (row) => row.model, empty: "No server has reported a model yet.",
        columns: columnsOf(shown, act),
      });
      place.replaceChildren(table.element);
    }
    table.update(shown.models);
  }

  async function refresh() {
    if (isAsking) return;
    isAsking = true;
    const reply = await attempt(() => ask("placement"));
    isAsking = false;
    if (!reply) return;
    const now = performance.now() / 1000;
    tables = reply.value.backends;
    const calls = {};
    for (const [name, each] of Object.entries(tables)) {
      calls[name] = Object.fromEntries(each.models.map((one) => [one.model, one.calls]));
      for (const one of each.models) {
        const earlier = before?.calls[name]?.[one.model];
        one.rate = earlier === undefined ? null : Math.max(0, one.calls - earlier) / (now - before.at);
      }
    }
    before = { calls, at: now };
    draw();
  }

  return { update: refresh, moved: draw };
}

function aboutOf({ servers, models, on_demand: onDemand }) {
  const held = models.filter((each) => each.copies).length;
  const silent = servers.filter((each) => !each.has_told);
  const how = onDemand ? "Models are loaded on demand." : "The gateway finds loaded models, but does not load models.";
  const errors = silent.map((each) => `${each.address} has not reported its models${each.error ? `: ${each.error}` : ""}.`);
  return [`${count(held)} of ${count(models.length)} models are loaded on ${count(servers.length)} servers.`, how, ...errors].join(" ");
}

/** The title of a server's column. */
function headOf(server) {
  const word = wordOf(server);
  return `${server.address} (${server.held}${word === "up" ? "" : `, ${word}`})`;
}

function columnsOf({ servers, can_load: canLoad }, act) {
  return [
    { id: "model", title: "Model", text: (row) => row.model },
    { id: "versions", title: "Versions", text: (row) => row.versions.join(", ") || NONE },
    number("copies", "Copies", (row) => count(row.copies), (row) => row.copies),
    number("rate", "Rate", (row) => (row.rate === null ? NONE : rate(row.rate)), (row) => row.rate ?? -1),
    number("inFlight", "In flight", (row) => count(row.in_flight), (row) => row.in_flight),
    number("total", "Total", (row) => count(row.calls), (row) => row.calls),
    ...servers.map((server, at) => ({
      id: `server${at}`, title: headOf(server), text: (row) => textOf(row, at),
      fill: (cell, row) => fill(cell, row, at, server, canLoad, act),
    })),
  ];
}

function number(id, title, text, value) {
  return { id, title, text, value, number: true };
}

const placeOf = (row, at) => row.places.find((each) => each.server === at);

function textOf(row, at) {
  const found = placeOf(row, at);
  return found ? [found.state, found.why].filter(Boolean).join(": ") : "";
}

function fill(cell, row, at, server, canLoad, act) {
  const found = placeOf(row, at);
  if (found) cell.append(html("span", { class: `badge ${COLORS[found.state]}`, title: found.why }, found.state), " ");
  if (!canLoad) return;
  if (found?.state === "held") cell.append(twice("Unload", () => act("unload", row.model, server)));
  else if (!found || found.state === "failed") {
    cell.append(html("button", { type: "button", class: "small quiet", click: () => act("load", row.model, server) }, "Load"));
  }
}
