// The Access view: API keys with their last use, and certificates with their expiry.

import { to } from "./address.js";
import { ask, post } from "./api.js";
import { html, setText, twice } from "./dom.js";
import { NONE, count, dateTime } from "./format.js";
import { newKey } from "./newkey.js";
import { Table } from "./table.js";

const DAY = 86_400_000; // milliseconds
const SOON = 30; // days before expiry from which a certificate is marked, as in the log
const ASKED_AGAIN = 10_000; // milliseconds

const days = (iso) => (new Date(iso) - Date.now()) / DAY;
const date = (iso) => (iso ? dateTime(iso) : NONE);

/** A time relative to now, in words. */
function distance(iso) {
  const minutes = Math.abs(days(iso)) * 1440;
  if (minutes < 1) return "less than a minute";
  const [value, unit] = minutes < 60 ? [minutes, "minute"] : minutes < 2880 ? [minutes / 60, "hour"] : [minutes / 1440, "day"];
  return `${Math.floor(value)} ${unit}${Math.floor(value) === 1 ? "" : "s"}`;
}

const ago = (iso) => (iso ? `${distance(iso)} ago` : "not since the start");

function end(iso) {
  if (!iso) return "never";
  return days(iso) < 0 ? `${distance(iso)} ago` : `in ${distance(iso)}`;
}

const endState = (iso) => (!iso || days(iso) > SOON ? "ok" : days(iso) > 0 ? "degraded" : "down");
const badge = (state, text) => html("span", { class: `badge ${state}` }, text);
const moment = (iso, text) => (iso ? html("time", { datetime: iso, title: date(iso) }, text) : text);

/** The cells of a key in a table without a filter, in the order of KEY_HEADINGS. */
export const KEY_HEADINGS = ["Id", "State", "Uses", "Last used", "Ends", "Note"];
export const keyCells = (key) => [
  html("code", {}, key.id), badge(levelOfKey(key), key.state), count(key.uses), moment(key.last_used, ago(key.last_used)),
  ending(key), key.note || NONE,
];

/** An expired key needs no action, so only a key that expires soon is amber. */
const levelOfKey = (key) => (key.state === "valid" ? "ok" : "");

const ending = (key) =>
  (key.state === "valid" && key.expires ? badge(endState(key.expires), end(key.expires)) : moment(key.expires, end(key.expires)));

const columns = (revokeButton) => [
  { id: "id", title: "Id", text: (row) => row.id, fill: (cell, row) => cell.append(html("code", {}, row.id)) },
  {
    id: "principal", title: "Principal", text: (row) => row.principal,
    fill: (cell, row) => cell.append(html("a", { href: to("principal", { of: row.principal }) }, row.principal)),
  },
  {
    id: "state", title: "State", text: (row) => row.state,
    fill: (cell, row) => cell.append(badge(levelOfKey(row), row.state)),
  },
  { id: "uses", title: "Uses", text: (row) => count(row.uses), value: (row) => row.uses, number: true },
  {
    id: "used", title: "Last used", text: (row) => ago(row.last_used), value: (row) => (row.last_used ? Date.parse(row.last_used) : 0),
    fill: (cell, row) => cell.append(moment(row.last_used, ago(row.last_used))), saved: (row) => row.last_used ?? "",
  },
  {
    id: "expires", title: "Ends", text: (row) => end(row.expires), value: (row) => (row.expires ? Date.parse(row.expires) : Infinity),
    fill: (cell, row) => cell.append(ending(row)), saved: (row) => row.expires ?? "",
  },
  { id: "created", title: "Made", text: (row) => date(row.created), value: (row) => row.created ?? "", saved: (row) => row.created ?? "" },
  { id: "note", title: "Note", text: (row) => row.note || NONE, wide: true },
  {
    id: "revoke", title: "Revoke", saved: null, text: (row) => (row.can_be_revoked ? "Revoke" : NONE),
    fill: (cell, row) => cell.append(row.can_be_revoked ? revokeButton(row) : NONE),
  },
];

export function show(root, { attempt }) {
  let asked = -Infinity;
  let isAsking = false;
  const failed = html("p", { class: "error bad", role: "status" });
  const keys = new Table({ label: "Keys", columns: columns((row) => twice("Revoke", () => revoke(row))), key: (row) => row.id, empty: "No keys match." });
  const told = html("p", { class: "muted", role: "status" });
  const rows = html("tbody");
  const none = html("p", { class: "muted", hidden: true }, "No listener, port or backend uses TLS.");
  const certificates = html("div", { class: "scroll", role: "region", "aria-label": "Certificates", tabindex: "0" },
    html("table", { "aria-label": "Certificates" },
      html("thead", {}, html("tr", {}, ...["Used by", "Ends", "File"].map((each) => html("th", { scope: "col" }, each)))), rows));
  // the gateway does the search, because it sends only some of the keys
  keys.filter.addEventListener("input", () => {
    asked = -Infinity;
    refresh();
  });
  const creating = newKey(attempt, again);
  root.append(
    html("h1", {}, "Access"),
    html("div", { class: "part" }, html("h2", {}, "API keys"), told, creating.element, failed, keys.element),
    html("div", { class: "part" }, html("h2", {}, "Certificates"), none, certificates),
  );

  function again() {
    asked = -Infinity;
    refresh();
  }

  async function revoke(row) {
    try {
      await attempt(() => post("../keys/revoke", { id: row.id }), true);
      setText(failed, "");
    } catch (error) {
      setText(failed, `Key ${row.id} could not be revoked: ${error.message}`);
    }
    again();
  }

  async function refresh() {
    if (isAsking || performance.now() - asked < ASKED_AGAIN) return;
    isAsking = true;
    asked = performance.now();
    const text = keys.filter.value.trim();
    const found = await attempt(() => ask("keys", `?${new URLSearchParams({ text })}`));
    const other = await attempt(() => ask("certificates"));
    isAsking = false;
    if (found && keys.filter.value.trim() !== text) {
      asked = -Infinity;
      return refresh(); // the user has typed in the meantime
    }
    if (found) tellKeys(found.value);
    if (other) tellCertificates(other.value.certificates);
  }

  function tellKeys({ file, keys: listed, matching, why_fixed: whyFixed }) {
    creating.tell(file === null ? "" : whyFixed);
    creating.element.hidden = file === null;
    keys.element.hidden = file === null;
    const more = listed.length < matching ? ` The first ${count(listed.length)} of ${count(matching)} are shown; use a filter to find the others.` : "";
    setText(told, file === null ? "The configuration sets no key file (auth.keys)." : `From ${file}. Uses are counted since the gateway started.${more}`);
    keys.update(listed.map((each) => ({ ...each, can_be_revoked: !whyFixed && each.state !== "revoked" })));
  }

  function tellCertificates(found) {
    none.hidden = found.length > 0;
    certificates.hidden = !found.length;
    rows.replaceChildren(...found.map((each) => html("tr", {},
      html("td", { class: "wide" }, each.used_by.join(", ")),
      html("td", { class: "wide" }, each.expires ? badge(endState(each.expires), end(each.expires)) : NONE, each.expires ? ` ${date(each.expires)}` : ""),
      html("td", { class: "wide" }, each.certificate ?? NONE, each.error && html("p", { class: "bad why" }, `The gateway does not use the current files: ${each.error}`)))));
  }

  return { update: () => refresh() };
}
