// The page of a principal: its permissions, limits, keys and requests.

import { KEY_HEADINGS, keyCells } from "./access.js";
import { to } from "./address.js";
import { ask } from "./api.js";
import { html } from "./dom.js";
import { NONE, count, seconds } from "./format.js";
import { facts, link, list, named, renew } from "./part.js";
import { plainTable } from "./table.js";

/** A description of each permission, as in docs/security.md. */
const PERMISSIONS = {
  infer: "run models",
  metadata: "read metadata of models and servers",
  control: "load and unload models, change settings of servers",
  offline: "take listeners offline and online",
  explain: "request explanations of responses",
  admin: "use the status API and this console",
  details: "get full errors",
  metrics: "read the metrics",
};

const globs = (names, all) => (names.includes("*") ? all : names.join(", "));
const period = (value) => (value === 1 ? "a second" : `${value.toLocaleString("en-US")} s`);

export const principal = named("principal", "Principal", ({ attempt }) => {
  const [permissions, limits, keys] = [0, 1, 2].map(() => html("div", { class: "part" }));
  return {
    more: [permissions, limits, keys],
    entries: ({ model: models }) => [["Models", list(models.map((each) => link("model", each)))]],
    refresh: async (name) => {
      const reply = await attempt(() => ask("principal", `?${new URLSearchParams({ name })}`));
      if (!reply) return;
      const found = reply.value;
      const { limits: _, keys: __, ...rights } = found;
      renew(permissions, rights, () => permissionsOf(found));
      renew(limits, found.limits, () => limitsOf(found));
      // the time since the last use of a key changes even if the reply does not
      renew(keys, [found.keys, Math.floor(Date.now() / 60_000)], () => keysOf(found));
    },
  };
});

function permissionsOf({ name, entry, sets, tokens, certificates, anonymous_on: anonymous, open_listeners: open }) {
  const rows = sets.flatMap((set) => set.grants.map((grant) => [
    html("code", {}, set.name),
    html("ul", { class: "plain" }, ...grant.operations.map((each) => html("li", {}, `${PERMISSIONS[each] ?? each} `, html("span", { class: "muted" }, `(${each})`)))),
    globs(grant.models, "all"), globs(grant.listeners, "all"),
  ]));
  const source = entry === null
    ? ["No entry of ", html("code", {}, "principals"), " matches this name, so it has no permissions where credentials are required."]
    : ["From the entry ", html("code", {}, entry), " in ", html("code", {}, "principals"), entry === name ? "." : ", the first that matches its name."];
  const ways = [
    ...(certificates.length ? [["Certificates", `of ${certificates.join(", ")}`]] : []),
    ...tokens.map(({ issuer, claim }) => ["Tokens", `of ${issuer}${claim === null ? "" : `, which add the sets that their claim ${claim} names`}`]),
    ...(anonymous.length ? [["Without credentials", `on ${anonymous.join(", ")}`]] : []),
  ];
  return [
    html("h2", {}, "Permissions"),
    html("p", {}, ...source),
    rows.length ? plainTable({ label: "Permissions", headings: ["Set", "May", "Models", "Listeners"], names: [undefined, "wide", "wide", "wide"], rows }) : "",
    ways.length ? facts(ways) : "",
    open.length ? html("p", { class: "muted" }, `Listeners without authentication (every client has full access): ${open.join(", ")}.`) : "",
  ].filter(Boolean);
}

const linked = (place) => (place.startsWith("backends.") ? link("backend", place.slice("backends.".length)) : link("route", place));

function limitsOf({ limits }) {
  const rows = limits.map((each) => [
    linked(each.place), `${count(each.requests)} in ${period(each.seconds)}`, count(each.burst),
    each.left === null ? "counted by Redis" : count(each.left), each.left === null ? NONE : each.full_in ? `in ${seconds(each.full_in)}` : "now",
  ]);
  const headings = ["At", "Requests", "At once", "Left now", "All again"];
  return [
    html("h2", {}, "Rate limits"),
    rows.length
      ? plainTable({ label: "Rate limits", headings, names: headings.map((_, at) => (at ? "number" : undefined)), rows })
      : html("p", { class: "muted" }, "No policy rate_limit has limits by principal. The pages of routes and backends show other limits."),
  ];
}

function keysOf({ keys }) {
  return [
    html("h2", {}, "API keys"),
    keys.length
      ? plainTable({ label: "API keys", headings: KEY_HEADINGS, names: [undefined, undefined, "number", undefined, undefined, "wide"], rows: keys.map(keyCells) })
      : html("p", { class: "muted" }, "No API keys."),
    html("p", {}, html("a", { href: to("access") }, "All keys")),
  ];
}
