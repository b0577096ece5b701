// The page: it selects the view, queries the gateway every two seconds, and manages the key and the theme.

import * as access from "./access.js";
import { read, to } from "./address.js";
import * as api from "./api.js";
import * as configuration from "./configuration.js";
import { html, setText } from "./dom.js";
import * as errors from "./errors.js";
import { count } from "./format.js";
import * as graphs from "./graphs.js";
import * as models from "./models.js";
import * as overview from "./overview.js";
import * as part from "./part.js";
import * as placement from "./placement.js";
import * as playground from "./playground.js";
import * as principal from "./principal.js";
import * as requests from "./requests.js";
import * as tables from "./tables.js";
import { Traffic } from "./traffic.js";

const INTERVAL = 2000; // milliseconds
const AFTER_FAILURE = 5000;

/**
 * Each view: its name in the address, its title, and the function that shows it. `show(root, {attempt})` fills `root` and returns
 * `update(model)`, called after each poll. A view that reads more of the address than a filter also returns `moved()`,
 * called when the address changes. `attempt(question)` queries the gateway and shows errors to the user.
 */
const VIEWS = [
  ["overview", "Overview", overview.show],
  ["listeners", "Listeners", tables.listeners],
  ["routes", "Routes", tables.routes],
  ["backends", "Backends", tables.backends],
  ["endpoints", "Endpoints", tables.endpoints],
  ["models", "Models", models.show],
  ["placement", "Placement", placement.show],
  ["graphs", "Graphs", graphs.show],
  ["playground", "Playground", playground.show],
  ["requests", "Requests", requests.show],
  ["errors", "Errors", errors.show],
  ["access", "Access", access.show],
  ["configuration", "Configuration", configuration.show],
];

/** The pages of a single object, like VIEWS, each with the view that lists all such objects. */
const PAGES = [
  ["route", "Route", part.route, "routes"],
  ["backend", "Backend", part.backend, "backends"],
  ["model", "Model", part.model, "models"],
  ["principal", "Principal", principal.principal, "access"],
];

const find = (id) => document.getElementById(id);
const model = { topology: null, traffic: new Traffic() };
let topologyTag = null;
let shown = { name: null, view: null };
let timer = null;
let isAsking = false;

// The key

const dialog = find("key-dialog");

function askForKey(why) {
  if (dialog.open) return;
  setText(find("key-why"), why);
  find("key").value = "";
  dialog.showModal();
}

dialog.addEventListener("cancel", (event) => event.preventDefault());
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.keepKey(find("key").value.trim());
  dialog.close();
  restart();
});
find("forget").addEventListener("click", () => {
  api.forgetKey();
  location.reload();
});

/** The reply, or null if the gateway requires a key or does not respond; the page shows why. `isTold`: the caller shows
 * failures itself. */
async function attempt(question, isTold = false) {
  try {
    const reply = await question();
    setText(find("connection"), "");
    find("forget").hidden = !api.hasKey();
    return reply;
  } catch (error) {
    if (error instanceof api.Refused) {
      stop();
      askForKey(api.hasKey() ? error.message : "");
    } else if (error instanceof api.Failed) {
      if (error instanceof api.Unanswered) tellState("down", "no answer");
      if (isTold) throw error;
      setText(find("connection"), `The data shown may be out of date: ${error.message}. Trying again…`);
    } else throw error;
    return null;
  }
}

// Queries

function stop() {
  clearTimeout(timer);
  timer = null;
}

function restart() {
  stop();
  poll();
  show(true);
}

async function poll() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  const isDone = await attempt(refresh);
  isAsking = false;
  if (dialog.open || document.hidden) return;
  stop();
  timer = setTimeout(poll, isDone ? INTERVAL : AFTER_FAILURE);
}

async function refresh() {
  const { traffic } = model;
  const since = traffic.time && traffic.now ? `?since=${traffic.time}` : "";
  let reply = await api.ask("traffic", since);
  // another process, so all its counts are new to the page
  if (since && reply.value.started !== traffic.started) reply = await api.ask("traffic");
  if (reply.value.topology !== topologyTag) {
    model.topology = (await api.ask("topology")).value;
    topologyTag = reply.value.topology;
    setText(find("version"), model.topology.version);
    links.get("graphs").parentElement.hidden = !model.topology.graphs.length;
    links.get("placement").parentElement.hidden = !model.topology.backends.some((each) => each.placed);
  }
  traffic.take(reply.value, reply.time, reply.changed, model.topology.latency_bounds);
  tellReady(reply.value);
  tellErrors(traffic.groups.all.totalErrors);
  shown.view?.update(model);
  return true;
}

function tellReady({ ready, shedding }) {
  if (!ready) tellState("down", "not ready");
  else if (shedding) tellState("degraded", "overloaded");
  else tellState("ok", "ready");
}

function tellState(state, text) {
  find("ready").className = `badge ${state}`;
  setText(find("ready"), text);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else if (!dialog.open) poll();
});

// Views

const links = new Map(
  VIEWS.map(([name, title]) => [name, html("a", { href: to(name) }, title)]),
);
find("navigation").append(html("ul", {}, ...[...links.values()].map((link) => html("li", {}, link))));
const errorCount = html("span", { class: "count", hidden: true });
links.get("errors").append(errorCount);

function tellErrors(number) {
  errorCount.hidden = !number;
  setText(errorCount, number > 999 ? "999+" : count(number));
}

function show(isNew = false) {
  const { view, parameters } = read();
  const [name, title, make, list] = [...VIEWS, ...PAGES].find(([each]) => each === view) ?? VIEWS[0];
  const of = list ? ` ${parameters.get("of") ?? ""}` : "";
  if (shown.name === name + of && !isNew) {
    if (shown.view.moved) shown.view.moved();
    else if (model.traffic.now) shown.view.update(model);
    return;
  }
  const isMove = shown.name !== null && shown.name !== name + of;
  for (const [each, link] of links) {
    if (each === (list ?? name)) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" }); // the row of links is wider than a phone's screen
    } else link.removeAttribute("aria-current");
  }
  document.title = `${title}${of} · Modelglot`;
  const main = find("main");
  main.replaceChildren();
  main.className = `view-${name}`;
  shown = { name: name + of, view: make(main, { attempt }) };
  if (model.traffic.now && model.topology) shown.view.update(model);
  if (isMove) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

addEventListener("hashchange", () => show());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the state of the page
  find("main").focus();
});

// The theme

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";

function tellTheme() {
  setText(find("theme"), isDark() ? "Light" : "Dark");
  find("theme").setAttribute("aria-label", isDark() ? "Change to the light theme" : "Change to the dark theme");
}

find("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("gateway-theme", document.documentElement.dataset.theme);
  } catch {
    // without storage, the choice lasts until the user leaves the page
  }
  tellTheme();
});
prefersDark.addEventListener("change", tellTheme);

tellTheme();
show();
poll();
