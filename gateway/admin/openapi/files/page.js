// The page of API documentation. The query of its own address says which document is shown.
"use strict";

const wanted = new URLSearchParams(location.search);
const listener = wanted.get("listener") ?? "";
const model = listener ? wanted.get("model") ?? "" : "";

const element = (id) => document.getElementById(id);

function addOption(parent, value, text) {
  const option = document.createElement("option");
  option.value = value;
  option.textContent = text;
  parent.append(option);
}

async function json(path) {
  const reply = await fetch(path);
  const body = await reply.json();
  if (!reply.ok) throw new Error(body.detail ?? `status ${reply.status}`);
  return body;
}

function problem(text) {
  element("problem").textContent = text;
  element("problem").hidden = false;
}

async function offerListeners() {
  const { documents } = await json("api/openapi");
  for (const each of documents) {
    addOption(element("listener"), each.listener, `listener ${each.listener} (${each.protocols.join(", ")})`);
  }
  element("listener").value = listener;
}

async function offerModels() {
  const { models } = await json("api/models");
  const names = new Set(models.flatMap((each) => each.reached_by.map((by) => by.name)));
  for (const name of [...names].sort()) {
    // globs are names of routes, not of models
    if (!/[*?[]/.test(name)) addOption(element("models"), name, "");
  }
}

async function show() {
  const query = model ? `?model=${encodeURIComponent(model)}` : "";
  const url = listener ? `api/openapi/${encodeURIComponent(listener)}${query}` : "openapi.json";
  element("source").href = url;
  const settings = {
    dom_id: "#document",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    // by default the page sends the document to a validator on the internet
    validatorUrl: null,
  };
  // a browser may not send requests from this port to a listener's
  if (listener) settings.supportedSubmitMethods = [];
  SwaggerUIBundle({ ...settings, spec: await json(url) });
}

element("model").value = model;
element("of-model").hidden = !listener;
element("listener").addEventListener("change", (event) => {
  element("of-model").hidden = !event.target.value;
  element("choice").requestSubmit();
});
element("choice").addEventListener("submit", (event) => {
  event.preventDefault();
  const chosen = new URLSearchParams();
  if (element("listener").value) {
    chosen.set("listener", element("listener").value);
    if (element("model").value) chosen.set("model", element("model").value);
  }
  location.search = chosen.toString();
});
for (const part of [offerListeners, offerModels, show]) part().catch((error) => problem(error.message));
