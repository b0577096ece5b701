// The form that creates an API key, and the key itself, which is shown once.

import { Failed, post } from "./api.js";
import { to } from "./address.js";
import { html, setText } from "./dom.js";

/** Tomorrow, in the format of a date input: the first day on which a key can expire. */
function tomorrow() {
  const at = new Date(Date.now() + 86_400_000);
  return [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((each) => String(each).padStart(2, "0")).join("-");
}

/** `element` is the form; `tell(why)` shows a reason instead of it, if any. `done()` is called after a key was created. */
export function newKey(attempt, done) {
  const principal = field("Principal", { required: true, maxlength: 256, autocomplete: "off", spellcheck: "false" });
  const expires = field("Expires (empty: never)", { type: "date" });
  const note = field("Note", { maxlength: 200, autocomplete: "off", placeholder: "Purpose of the key" });
  const failed = html("p", { class: "bad", role: "status" });
  const shown = html("div", { class: "new-key", role: "status" });
  const why = html("p", { class: "muted" });
  const form = html("form", { submit: (event) => {
    event.preventDefault();
    create();
  } }, principal.element, expires.element, note.element, html("div", { class: "buttons" }, html("button", { type: "submit", class: "primary" }, "Create key")));
  const details = html("details", { class: "panel creating", toggle: () => expires.input.setAttribute("min", tomorrow()) }, html("summary", {}, "Create a key"), why, form, failed, shown);

  async function create() {
    setText(failed, "");
    shown.replaceChildren();
    const { value: day } = expires.input;
    const wanted = {
      principal: principal.input.value.trim(), note: note.input.value.trim(),
      expires: day ? new Date(`${day}T00:00`).toISOString() : null,
    };
    try {
      const reply = await attempt(() => post("../keys", wanted), true);
      if (!reply) return;
      form.reset();
      show(reply.value);
      done();
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      setText(failed, error.message);
    }
  }

  function show({ key, entry }) {
    const copied = html("span", { class: "muted" });
    shown.replaceChildren(
      html("p", {}, `Key ${entry.id} of `, html("a", { href: to("principal", { of: entry.principal }) }, entry.principal), " was created. Copy it now, because it cannot be shown again."),
      html("div", { class: "controls" },
        html("code", {}, key),
        html("button", { type: "button", class: "small", click: () => copy(key, copied) }, "Copy"),
        html("button", { type: "button", class: "small", click: () => shown.replaceChildren() }, "Hide"),
        copied),
    );
  }

  return {
    element: details,
    tell: (text) => {
      why.hidden = !text;
      form.hidden = Boolean(text);
      setText(why, text ? `Keys cannot be changed here: ${text}.` : "");
    },
  };
}

/** Browsers refuse access to the clipboard on pages from another machine without TLS. */
async function copy(key, told) {
  try {
    await navigator.clipboard.writeText(key);
    setText(told, "Copied.");
  } catch {
    setText(told, "The browser refuses access to the clipboard. Select and copy the key instead.");
  }
}

let made = 0;

function field(title, attributes) {
  const input = html("input", { id: `new-key-${++made}`, ...attributes });
  return { input, element: html("div", { class: "field" }, html("label", { for: input.id }, title), input) };
}
