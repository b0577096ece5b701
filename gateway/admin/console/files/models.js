// The models of the backends, with their signatures. The gateway queries the servers when a user opens the view.

import { change, read, to } from "./address.js";
import { ask } from "./api.js";
import { html, setText } from "./dom.js";
import { NONE, count, shortened } from "./format.js";
import { Table } from "./table.js";

const MOST_WITHOUT = 20; // backends
const LONGEST_REASON = 300;

export function show(root, { attempt }) {
  const table = new Table({
    label: "Models",
    key: (row) => JSON.stringify([row.backend, row.name, row.version]),
    empty: "No server or route lists models.",
    columns: [
      {
        id: "name", title: "Model", text: (row) => row.name,
        fill: (cell, row) => cell.append(html("button", { type: "button", class: "link", click: () => choose(row) }, row.name)),
      },
      { id: "version", title: "Version", text: (row) => row.version || NONE },
      { id: "backend", title: "Backend", text: (row) => row.backend || NONE },
      {
        id: "state", title: "State", text: wordOf,
        fill: (cell, row) => cell.append(
          html("span", { class: `badge ${stateOf(row)}` }, wordOf(row)),
          row.reason ? html("p", { class: "muted why" }, shortened(row.reason, LONGEST_REASON)) : ""),
      },
      {
        id: "reached", title: "Clients call it", wide: true,
        text: (row) => row.reached_by.map((each) => `${each.name} (${each.route})`).join(", ") || "no route",
      },
    ],
  });
  let isWanted = false; // the list could not be read
  const panel = html("section", { class: "panel", "aria-label": "Signature", tabindex: "-1", hidden: true });
  const note = html("p", { class: "muted", role: "status" }, "Querying the servers…");
  const again = html("button", { type: "button", click: load }, "Refresh");
  table.controls.append(again, note);
  const without = html("section", { class: "panel", "aria-label": "Servers that list no models", hidden: true });
  root.append(html("h1", {}, "Models"), without, html("div", { class: "beside" }, table.element, panel));

  async function load() {
    isWanted = false;
    const found = await attempt(() => ask("models"));
    if (!found) {
      isWanted = true;
      setText(note, "The list could not be loaded.");
      return;
    }
    const withList = new Set(found.value.models.filter((each) => each.source === "server").map((each) => each.backend));
    table.update(found.value.models.map((each) => ({ ...each, is_expected: withList.has(each.backend) })));
    tellWithout(found.value.without_list);
    setText(note, found.value.is_complete ? "" : "Not all models are listed.");
  }

  function tellWithout(list) {
    without.hidden = !list.length;
    without.replaceChildren(
      html("h2", {}, html("span", { class: "badge down" }, list.length === 1 ? "1 backend" : `${count(list.length)} backends`), " cannot list models"),
      html("ul", {}, ...list.slice(0, MOST_WITHOUT).map((each) =>
        html("li", {}, html("a", { href: to("overview", { at: `backend:${each.backend}` }) }, each.backend), `: ${shortened(each.why, LONGEST_REASON)}`))),
      list.length > MOST_WITHOUT ? html("p", { class: "muted" }, `and ${count(list.length - MOST_WITHOUT)} more`) : "",
    );
  }

  function choose(row) {
    change({ backend: row.backend, model: row.name, version: row.version });
    showSignature(true);
  }

  async function showSignature(isAsked) {
    const { parameters } = read();
    const model = parameters.get("model");
    panel.hidden = !model;
    if (!model) return;
    const [backend, version] = [parameters.get("backend") ?? "", parameters.get("version") ?? ""];
    const query = `?${new URLSearchParams({ backend, model, version })}`;
    const heading = html("h2", {}, version ? `${model}, version ${version}` : model);
    panel.replaceChildren(heading, html("p", { class: "muted" }, "Querying the server…"));
    if (isAsked) panel.focus({ preventScroll: false });
    let nodes;
    try {
      const found = await attempt(() => ask("models/signature", query), true);
      if (!found) return;
      nodes = describe(found.value, backend);
    } catch (error) {
      nodes = [html("p", { class: "bad" }, error.message)];
    }
    if (read().parameters.get("model") === model) panel.replaceChildren(heading, ...nodes);
  }

  load();
  showSignature(false);
  return {
    update: () => {
      if (isWanted) load();
    },
    moved: () => showSignature(false),
  };
}

const WORDS = { server: "listed", configuration: "not listed", graph: "graph" };
const wordOf = (row) => row.state || (row.source === "configuration" && !row.is_expected ? "in a route" : WORDS[row.source]);

/**
 * The level of a state. The operator should act if a server lists its models without the model of a route, or if it could
 * not load a model. A model that is not loaded, and a server without a list, are normal.
 */
function stateOf({ state, reason, source, is_expected: isExpected }) {
  const word = state.toUpperCase();
  if (word === "READY") return "ok";
  if (word === "UNAVAILABLE") return reason && reason.toLowerCase() !== "unloaded" ? "down" : "";
  return !word && source === "configuration" && isExpected ? "degraded" : "";
}

function describe(signature, backend) {
  const facts = [
    ["Backend", backend || "none, because it is a model graph"],
    ["Platform", signature.platform || NONE],
    ["Versions", signature.versions.join(", ") || NONE],
    ["Operations", signature.operations.join(", ") || NONE],
    ["Tensors from", signature.route ? `${signature.route} (signature)` : backend ? "the server's metadata" : "the models of its steps"],
  ];
  return [
    html("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])),
    tensors("Inputs", signature.inputs),
    signature.unknown ? html("p", { class: "bad" }, `Only the inputs are known: ${signature.unknown}`) : tensors("Outputs", signature.outputs),
  ];
}

function tensors(title, list) {
  if (!list.length) return html("p", {}, `${title}: not reported by the server.`);
  const rows = list.map((each) =>
    html("tr", {}, html("td", {}, each.name), html("td", {}, each.datatype), html("td", {}, `[${each.shape.join(", ")}]`)),
  );
  return html("table", { class: "tensors" }, html("caption", {}, title),
    html("thead", {}, html("tr", {}, ...["Name", "Datatype", "Shape"].map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, ...rows));
}
