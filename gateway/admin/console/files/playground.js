// The playground sends a request that the user composes through a listener. It shows the response, and code for other clients.

import { change, read } from "./address.js";
import { Wrong, ask, post } from "./api.js";
import { html, setText, withCode } from "./dom.js";
import { NONE, count, seconds } from "./format.js";
import { plainTable } from "./table.js";
import { Tabs } from "./tabs.js";
import { way } from "./way.js";

const MOST_FILLED = 100_000; // elements
const LONG = 1000; // characters; cells with longer values can be scrolled
const SAVING = 60_000; // milliseconds that the browser gets to save a file
const KEYS = "gateway-playground-key:"; // prefix of the keys in the session storage, followed by the listener's name
const PARAMETERS = ["listener", "protocol", "model", "version", "operation"];

let madeFields = 0;

/** A labeled control with space for an error message. `name`: the field's name in errors. */
function field(name, label, control, hint) {
  const id = `field-${++madeFields}`;
  const error = html("p", { class: "bad field-error", id: `${id}-error` });
  control.id = id;
  control.dataset.field = name;
  control.setAttribute("aria-describedby", `${id}-error`);
  return html("div", { class: "field" }, html("label", { for: id }, label, hint && html("span", { class: "muted" }, ` ${hint}`)), control, error);
}

const text = (attributes = {}) => html("input", { type: "text", autocomplete: "off", spellcheck: "false", ...attributes });
const area = (rows) => html("textarea", { rows, spellcheck: "false", autocomplete: "off" });

function options(select, values, chosen) {
  select.replaceChildren(...values.map((each) => html("option", { value: each }, each)));
  if (values.includes(chosen)) select.value = chosen;
}

export function show(root, { attempt }) {
  let settings = null;
  let models = [];
  let signature = null;
  let gateway = null; // its topology and traffic
  let asked = 0; // number of the last query for a signature
  let inputs = [];
  let canceling = null; // cancels the request in progress
  let isLoading = false;
  let written = ""; // the form for which the snippets were written

  const listener = html("select", { change: () => chooseListener() });
  const protocol = html("select", { change: () => chooseProtocol() });
  const names = html("datalist", { id: "playground-models" });
  const modelName = text({ list: "playground-models", maxlength: 1024, change: () => chooseModel() });
  const version = text({ maxlength: 1024, change: () => remember() });
  const operation = html("select", { change: () => chooseOperation() });
  const about = html("p", { class: "muted", role: "status" });
  const fields = html("div", { class: "inputs" });
  const parameters = area(2);
  const headers = area(2);
  const key = html("input", { type: "password", autocomplete: "off", spellcheck: "false", change: () => keepKey() });
  const limit = html("input", { type: "number", min: "0.1", step: "any" });
  const keyField = field("key", "Key for the listener", key, "kept only in this tab");
  const wrong = html("p", { class: "bad", role: "alert" });
  const buttons = ["send", "explain", "snippets"].map((name) =>
    html("button", { type: name === "send" ? "submit" : "button", class: name === "send" ? "primary" : undefined, click: name === "send" ? undefined : () => run(name) },
      { send: "Send", explain: "Explain", snippets: "Snippets" }[name]));
  const more = html("details", {}, html("summary", {}, "Parameters, headers, version, time limit"),
    field("parameters", "Parameters", parameters, "a JSON object"),
    field("headers", "Headers", headers, "name: value, one per line"),
    field("version", "Version", version),
    field("seconds", "Time limit", limit, "seconds"));
  const form = html("form", { class: "panel playground-form", novalidate: true, "aria-label": "Request", submit: (event) => { event.preventDefault(); run("send"); } },
    html("div", { class: "pair" }, field("listener", "Listener", listener), field("protocol", "Protocol", protocol)),
    html("div", { class: "pair" }, field("model", "Model", modelName), field("operation", "Operation", operation)),
    names, about, fields,
    html("button", { type: "button", class: "link", click: () => { addInput({ name: "", datatype: "FP64", shape: null }); inputs.at(-1).name.focus(); } }, "Add an input"),
    keyField, more, wrong, html("div", { class: "buttons" }, ...buttons));
  const told = html("p", { class: "muted", role: "status" });
  const cancel = html("button", { type: "button", hidden: true, click: () => canceling?.abort() }, "Cancel");
  const tabs = new Tabs("Result of the request", [
    ["reply", "Reply", html("p", { class: "muted" }, "No request was sent yet.")],
    ["request", "Request", html("p", { class: "muted" }, "The bytes of the request are shown after you send it.")],
    ["explain", "Explain", html("p", { class: "muted" }, "“Explain” shows the path of the request without sending it.")],
    ["snippets", "Snippets", html("p", { class: "muted" }, "This request is shown here as code for other clients.")],
  ], "reply", (name) => { if (name === "snippets" && JSON.stringify(filled()) !== written) run("snippets", true); });
  const result = html("section", { class: "panel playground-result", "aria-label": "Result" }, html("div", { class: "controls waiting" }, told, cancel), tabs.element);
  root.append(html("h1", {}, "Playground"), html("div", { class: "playground" }, form, result));

  const chosenListener = () => settings?.listeners.find((each) => each.name === listener.value);

  async function load() {
    isLoading = true;
    const [found, listed] = [await attempt(() => ask("playground")), await attempt(() => ask("models"))];
    isLoading = false;
    if (!found) return;
    settings = found.value;
    models = listed?.value.models ?? [];
    limit.value = settings.seconds;
    limit.max = settings.most_seconds;
    const { parameters: now } = read();
    options(listener, settings.listeners.map((each) => each.name), now.get("listener"));
    modelName.value = now.get("model") ?? "";
    version.value = now.get("version") ?? "";
    const known = [...new Set(models.flatMap((each) => each.reached_by.map((way) => way.name)).filter((name) => !name.includes("*")))];
    names.replaceChildren(...known.map((each) => html("option", { value: each })));
    if (!modelName.value) modelName.value = chosenListener()?.model || (known[0] ?? "");
    chooseListener(now.get("protocol"), now.get("operation"));
    await chooseModel();
  }

  function chooseListener(wantedProtocol = protocol.value, wantedOperation = operation.value) {
    const at = chosenListener();
    if (!at) return;
    options(protocol, at.protocols, wantedProtocol);
    key.value = sessionStorage.getItem(KEYS + at.name) ?? "";
    keyField.hidden = !at.auth;
    chooseProtocol(wantedOperation);
  }

  function chooseProtocol(wantedOperation = operation.value) {
    options(operation, settings.operations[protocol.value] ?? [], wantedOperation);
    chooseOperation();
  }

  function chooseOperation() {
    showInputs();
    remember();
  }

  function keepKey() {
    if (key.value) sessionStorage.setItem(KEYS + listener.value, key.value);
    else sessionStorage.removeItem(KEYS + listener.value);
  }

  function remember() {
    change(Object.fromEntries(PARAMETERS.map((name, at) => [name, [listener, protocol, modelName, version, operation][at].value])));
  }

  async function chooseModel() {
    remember();
    const turn = ++asked;
    const name = modelName.value;
    signature = null;
    const found = models.find((each) => each.reached_by.some((way) => way.name === name));
    if (found) {
      setText(about, "Querying the server for the signature…");
      try {
        const query = `?${new URLSearchParams({ backend: found.backend, model: found.name, version: found.version })}`;
        const reply = await attempt(() => ask("models/signature", query), true);
        if (turn !== asked) return;
        signature = reply?.value ?? null;
        setText(about, signature?.unknown ? `Only the inputs are known: ${signature.unknown}` : signature && !signature.inputs.length ? "The server does not report the model's inputs. Add them here." : "");
      } catch (error) {
        if (turn !== asked) return;
        setText(about, `The signature is unknown: ${error.message}`);
      }
    } else {
      setText(about, name ? "No server lists this model. Add its inputs here." : "");
    }
    showInputs(true);
  }

  /** The fields of the inputs. They keep the typed values, unless the user selects another model. */
  function showInputs(isOther = false) {
    const kept = new Map(isOther ? [] : inputs.map((each) => [each.name.value, each]));
    const free = isOther ? [] : inputs.filter((each) => each.isAdded);
    inputs = [];
    fields.replaceChildren();
    for (const spec of signature?.inputs ?? []) addInput(spec, kept.get(spec.name));
    for (const each of free) addInput({ name: each.name.value, datatype: each.datatype.value, shape: null }, each);
    for (const name of settings?.derivatives[operation.value] ?? []) {
      const isIndex = name.includes("_wrt");
      addInput({ name, datatype: isIndex ? "INT64" : "FP64", shape: isIndex ? [1] : [-1, -1], isOwn: true, values: isIndex ? "0" : "1" }, kept.get(name));
    }
    if (!inputs.length) addInput({ name: "", datatype: "FP64", shape: null });
  }

  function addInput(spec, before) {
    const at = inputs.length;
    const isAdded = spec.shape === null;
    const each = {
      isAdded, spec,
      name: text({ value: spec.name, maxlength: 1024, readonly: !isAdded }),
      datatype: html("select"),
      shape: text({ value: spec.shape === null || spec.isOwn ? "" : spec.shape.map((size) => (size === -1 ? 1 : size)).join(", ") }),
      values: area(3),
    };
    options(each.datatype, settings?.datatypes ?? [spec.datatype], spec.datatype);
    if (spec.isOwn) each.values.value = spec.values;
    else if (!isAdded) fill(each, "range");
    if (before) for (const part of ["datatype", "shape", "values"]) each[part].value = before[part].value;
    const label = spec.name || `input ${at + 1}`;
    const fillers = ["ones", "range", "random"].map((how) =>
      html("button", { type: "button", class: "small", "aria-label": `Fill ${label}: ${how}`, click: () => fill(each, how) }, how));
    each.element = html("fieldset", {},
      html("legend", {}, label, !isAdded && !spec.isOwn && html("span", { class: "muted" }, ` ${spec.datatype} [${spec.shape.join(", ")}]`) || ""),
      isAdded && field(`inputs.${at}.name`, "Name", each.name),
      html("div", { class: "pair" },
        field(`inputs.${at}.datatype`, "Datatype", each.datatype),
        field(`inputs.${at}.shape`, "Shape", each.shape, "-1: any size")),
      field(`inputs.${at}.values`, "Values", each.values, spec.datatype === "BYTES" ? "one per line, or JSON" : "JSON or a list"),
      html("div", { class: "fillers" }, "Fill: ", ...fillers,
        isAdded && html("button", { type: "button", class: "small", "aria-label": `Remove ${label}`, click: () => remove(each) }, "remove")));
    inputs.push(each);
    fields.append(each.element);
  }

  function remove(gone) {
    inputs = inputs.filter((each) => each !== gone);
    showInputs();
    modelName.focus();
  }

  function fill(each, how) {
    const sizes = each.shape.value.split(/[,\s[\]]+/).filter(Boolean).map(Number);
    const number = sizes.reduce((a, b) => a * (b === -1 ? 1 : b), 1);
    if (!Number.isInteger(number) || number < 0 || number > MOST_FILLED) {
      tellWrong({ [each.shape.dataset.field]: `expected sizes such as 1, 3, with at most ${count(MOST_FILLED)} elements` });
      return;
    }
    const made = Array.from({ length: number }, (_, at) => value(each.datatype.value, how, at));
    each.values.value = made.join(each.datatype.value === "BYTES" ? "\n" : ", ");
  }

  function filled() {
    return {
      listener: listener.value, protocol: protocol.value, model: modelName.value, version: version.value,
      operation: operation.value,
      inputs: inputs.filter((each) => !each.isAdded || each.name.value || each.values.value).map((each) => ({
        name: each.name.value, datatype: each.datatype.value, shape: each.shape.value, values: each.values.value,
        declared: each.spec.shape ?? [],
      })),
      outputs: (signature?.outputs ?? []).map(({ name, datatype, shape }) => ({ name, datatype, shape })),
      parameters: parameters.value, headers: headers.value, key: keyField.hidden ? "" : key.value,
      seconds: Number(limit.value) || 0,
    };
  }

  function tellWrong(errors, isFocused = true) {
    const others = [];
    let first = null;
    for (const control of form.querySelectorAll("[data-field]")) {
      const own = errors[control.dataset.field];
      setText(document.getElementById(control.getAttribute("aria-describedby")), own ?? "");
      if (own) {
        control.setAttribute("aria-invalid", "true");
        if (more.contains(control)) more.open = true;
        first ??= control;
      } else control.removeAttribute("aria-invalid");
    }
    for (const [name, each] of Object.entries(errors)) if (!form.querySelector(`[data-field="${CSS.escape(name)}"]`)) others.push(each);
    setText(wrong, others.join("; "));
    if (isFocused) first?.focus();
  }

  /** `isByTab`: the user opened a tab instead of pressing a button, so the focus stays in the tab. */
  async function run(what, isByTab = false) {
    if (!settings || buttons[0].disabled) return;
    tellWrong({});
    const asking = filled();
    setText(told, what === "send" ? "Waiting for the response…" : "Working…");
    for (const each of buttons) each.disabled = true;
    canceling = new AbortController();
    cancel.hidden = false;
    let after = "";
    try {
      const found = await attempt(() => post(`playground/${what}`, asking, canceling.signal), true);
      if (!found) return;
      ({ send: showSent, explain: showExplained, snippets: showSnippets })[what](found.value, asking);
      if (!isByTab) tabs.choose(what === "send" ? "reply" : what);
    } catch (error) {
      if (error.name === "AbortError") after = "Cancelled.";
      else tellWrong(error instanceof Wrong ? error.errors : { "": error.message }, !isByTab);
      if (isByTab) tabs.fill(what, html("p", { class: "bad" }, error.message));
    } finally {
      for (const each of buttons) each.disabled = false;
      if (cancel.contains(document.activeElement)) buttons[0].focus();
      cancel.hidden = true;
      setText(told, after);
    }
  }

  function showSent(sent) {
    const badge = html("span", { class: `badge ${sent.status === "OK" ? "ok" : "down"}` }, sent.status);
    const facts = [["Time", seconds(sent.seconds)], ...Object.entries(sent.facts).map(([name, each]) =>
      name === "retry-after" ? ["Try again after", /^\d+$/.test(each) ? `${each} s` : each] : [name, each])];
    if (sent.reason) facts.unshift(["Reason", sent.reason]);
    const replies = sent.calls.flatMap((each) => each.replies);
    const own = replies.length ? replies.map(message) : [html("p", { class: "muted" }, "No reply.")];
    const forms = new Tabs("The response in every protocol", [
      [sent.protocol, `${sent.protocol} (as received)`, html("div", {}, ...own)],
      ...sent.forms.map((each) => [each.protocol, each.protocol,
        html("div", {}, ...(each.error ? [html("p", { class: "bad" }, each.error)] : each.messages.map(message)))]),
    ]);
    tabs.fill("reply",
      html("p", { class: "outcome" }, badge, sent.error ? ` ${sent.error}` : ""),
      html("dl", { class: "facts" }, ...facts.flatMap(([name, each]) => [html("dt", {}, name), html("dd", {}, each)])),
      ...sent.outputs.map((each) => outputs(each)),
      sent.more_outputs ? html("p", { class: "muted" }, `${count(sent.more_outputs)} more outputs are not shown.`) : null,
      forms.element);
    tabs.fill("request", ...sent.calls.flatMap((each, at) => [
      sent.calls.length > 1 && html("h2", {}, `Call ${at + 1} of ${sent.calls.length}`),
      message(each.request),
      html("p", { class: "muted" }, `Encoding ${seconds(each.encode)}, exchange ${seconds(each.exchange)}, decoding ${seconds(each.decode)}.`),
    ]));
    const at = chosenListener();
    const hint = `${sent.unexplained} “Explain” shows the path without sending the request.`;
    tabs.fill("explain", sent.explanation ? way({ live: sent.explanation, sent, listener: at, ...gateway }) : html("p", { class: "muted" }, ...withCode(hint)));
  }

  function showExplained(explanation) {
    tabs.fill("explain", way({ explanation, listener: chosenListener(), ...gateway }));
  }

  function showSnippets(list, asked) {
    written = JSON.stringify(asked);
    const made = new Tabs("Clients", list.map((each) => [each.name.replace(/\W/g, "-"), each.name, snippet(each)]),
      (list.find((each) => each.code) ?? list[0]).name.replace(/\W/g, "-"));
    tabs.fill("snippets", made.element);
  }

  load();
  return {
    update: (model) => {
      gateway = model;
      if (!settings && !isLoading) load(); // the previous query failed
    },
    moved() {},
  };
}

function value(datatype, how, at) {
  if (datatype === "BYTES") return { ones: "a", range: `text ${at}`, random: Math.random().toString(36).slice(2, 8) }[how];
  if (datatype === "BOOL") return String({ ones: true, range: at % 2 === 1, random: Math.random() < 0.5 }[how]);
  if (how === "ones") return 1;
  if (how === "range") return /8$/.test(datatype) ? at % 128 : at;
  return /INT/.test(datatype) ? Math.floor(Math.random() * 100) : Math.random().toFixed(4);
}

function message(shown) {
  const head = shown.head.length ? `${shown.head.join("\n")}\n${shown.kind === "empty" ? "" : "\n"}` : "";
  return html("figure", { class: "wire" },
    html("figcaption", { class: "muted" }, `${count(shown.size)} bytes${shown.kind === "hex" ? ", in hexadecimal" : ""}${shown.cut ? ", not all shown" : ""}`),
    shown.whole ? html("p", {}, save(shown)) : "",
    html("pre", { tabindex: "0", role: "region", "aria-label": "Message" }, head + shown.body));
}

/** A button that saves all bytes of a response as a file. */
function save(shown) {
  return html("button", {
    type: "button",
    click: () => {
      const bytes = Uint8Array.from(atob(shown.whole), (each) => each.charCodeAt(0));
      const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
      html("a", { href: address, download: shown.kind === "hex" ? "reply.bin" : "reply.json" }).click();
      setTimeout(() => URL.revokeObjectURL(address), SAVING);
    },
  }, `Save the whole response (${count(shown.size)} bytes)`);
}

function outputs(list) {
  if (!list.length) return html("p", { class: "muted" }, "The response has no outputs.");
  const rows = list.map((each) => [each.name || NONE, each.datatype, `[${each.shape.join(", ")}]`, [
    html("div", { class: "values", ...(each.values.length > LONG ? { tabindex: "0", role: "region", "aria-label": `Values of ${each.name || "the output"}` } : {}) },
      html("code", {}, each.values + (each.cut ? " …" : ""))),
    each.cut ? html("p", { class: "muted" }, `Only the first of ${count(each.elements)} elements are shown.`) : ""]]);
  return plainTable({ label: "Outputs", headings: ["Output", "Datatype", "Shape", "Values"], names: [undefined, undefined, undefined, "wide"], rows });
}

function snippet(each) {
  if (!each.code) return html("p", { class: "muted" }, `Not possible for this request: ${each.note}.`);
  const told = html("span", { class: "muted", role: "status" });
  const copy = html("button", {
    type: "button",
    click: async () => {
      try {
        await navigator.clipboard.writeText(each.code);
        setText(told, "Copied");
      } catch {
        getSelection().selectAllChildren(code);
        setText(told, "Selected. Copy it with the keyboard.");
      }
    },
  }, "Copy");
  const code = html("pre", { tabindex: "0", role: "region", "aria-label": `Snippet for ${each.name}` }, each.code);
  return html("figure", { class: "wire" }, html("figcaption", { class: "controls" }, copy, told, each.note && html("span", { class: "muted" }, each.note)), code);
}
