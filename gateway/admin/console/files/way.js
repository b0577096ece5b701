// The path of one request as a drawing: listener, protocol, routes, bridge, policies, backend, response.

import { fitted, html, svg } from "./dom.js";
import { stateOf, wordOf } from "./drawing.js";
import { NONE, conditions, count, seconds } from "./format.js";

const WIDTH = 104;
const HEIGHT = 74;
const GAP = 16;
const SMALL = 24;
const MOST = 6; // maximum number of routes, and of backends, below their stage
const STATES = ["down", "degraded", "unknown", "ok"]; // of backends, the worst first
const WORDS = { down: "failed", unreached: "not reached" };

/**
 * `explanation` is the explanation of a request that is not sent; `live` is the explanation in the response `sent`. Only one
 * of them is set. `listener` and `topology` come from the configuration, and `traffic` is the current traffic.
 */
export function way({ explanation, live, sent, listener, topology, traffic }) {
  const stages = explanation ? offline(explanation, topology, traffic) : online(live, sent, listener, topology);
  return html("div", { class: "way" },
    html("p", { class: "muted" }, explanation
      ? "Nothing was sent. This is the path that the request would take. Metadata that the gateway would first fetch from a server is unknown."
      : "The path of the request that was just sent."),
    drawn(stages), listed(stages));
}

const milliseconds = (value) => (value === undefined ? null : value / 1000);
const bytes = (value) => (value === null || value === undefined ? "" : `${count(value)} bytes`);
const time = (stage) => (stage.seconds === null || stage.seconds === undefined ? "" : seconds(stage.seconds));
const figures = (stage) => [time(stage), bytes(stage.bytes)].filter(Boolean).join(" · ");

function tensor(each) {
  const [name, datatype, shape] = Array.isArray(each) ? each : [each.name, each.datatype, each.shape];
  return `${name || "(no name)"} ${datatype} [${shape.join(", ")}]`;
}

function changed({ before, after, cast, cast_error: error }) {
  if (!before) return `${tensor(after)}: added`;
  if (!after) return `${tensor(before)}: left out`;
  const lost = cast?.error ?? error;
  const text = tensor(before) === tensor(after) ? `${tensor(before)}: unchanged` : `${tensor(before)} → ${tensor(after)}`;
  return lost ? `${text}, the largest error is ${lost}` : cast ? `${text}, every value is the same` : text;
}

function policiesOf(topology, route, backend) {
  return [
    ...(topology?.routes.find((each) => each.name === route)?.policies ?? []).map((each) => `${each} (${route})`),
    ...(topology?.backends.find((each) => each.name === backend)?.policies ?? []).map((each) => `${each} (${backend})`),
  ];
}

function matches(topology, route) {
  const found = topology?.routes.find((each) => each.name === route);
  return found ? `matches (${conditions(found.match)})` : "a model graph";
}

const stepCount = (steps) => (steps.length === 1 ? "1 step" : `${steps.length} steps`);

/** A graph step, for a request that is not sent. */
const planned = (step) =>
  `step ${step.step} calls ${step.model} (${step.route || step.error}): ${step.inputs.join(", ")}`;

/** A graph step that was called, with its input and output tensors. */
const done = (step) =>
  `step ${step.step} (${step.model}): ${step.inputs ?? ""} → ${step.error || step.outputs || NONE}, ${step.ms} ms`;

/** The current state of the backends, for a request that is not sent: the worst state, and the endpoints that are not up. */
function healthOf(names, traffic) {
  if (!traffic?.now) return { health: "unknown", lines: [] };
  const states = names.map((key) => stateOf(traffic, { kind: "backend", key }) || "unknown");
  const endpoints = names.flatMap((name) => traffic.now.backends[name]?.endpoints ?? []).filter((each) => wordOf(each) !== "up");
  const tell = (each) => (wordOf(each) === "unknown" ? "was not called yet" : `is ${wordOf(each)}${each.last_error ? `: ${each.last_error}` : ""}`);
  const lines = endpoints.slice(0, MOST).map((each) => `${each.address} ${tell(each)}`);
  if (endpoints.length > MOST) lines.push(`${count(endpoints.length - MOST)} more endpoints that are not up`);
  return { health: STATES.find((each) => states.includes(each)), lines };
}

function offline(found, topology, traffic) {
  const took = Object.fromEntries(found.seconds);
  const decision = found.decision;
  const calls = found.calls.filter((each) => each.operation !== "metadata");
  const call = calls[0] ?? found.calls[0];
  const backend = call?.backend || decision?.backends[0]?.backend || "";
  const target = decision?.backends.find((each) => each.backend === backend);
  const policies = policiesOf(topology, decision?.route, backend);
  const { health, lines: unwell } = healthOf([...new Set([backend, ...calls.map((each) => each.backend)])].filter(Boolean), traffic);
  const request = found.request;
  const stages = [
    { id: "transport", title: "Listener", name: found.listener, bytes: found.received.size, lines: [`${found.protocol} over ${found.transport}`, `${found.received.method} ${found.received.path}`.trim()] },
    { id: "decode", title: "Protocol", name: found.protocol, seconds: took.decode, lines: [found.pattern && `pattern ${found.pattern}`, request && `${request.operation} of ${request.model}${request.version ? `, version ${request.version}` : ""}`, ...(request?.inputs ?? []).map((each) => `input ${tensor(each)}`)] },
    {
      id: "route", title: "Route", name: decision?.route || (decision?.note ? "not needed" : NONE), seconds: took.route,
      lines: [decision?.note, decision?.readings.length && `the name is interpreted as ${decision.readings.join(", or as ")}`, ...(decision?.routes ?? []).map((each) => `${each.route}: ${each.taken ? matches(topology, each.route) : each.unmet.join("; ") || "would match, but an earlier route does"}`)],
      below: (decision?.routes ?? []).filter((each) => !each.taken).map((each) => ({ name: each.route, why: each.unmet.join("; ") || "an earlier route matches" })),
    },
    { id: "fit", title: "Bridge", name: found.inputs.some((each) => changed(each).includes("→") || !each.before || !each.after) ? "changed" : call ? "unchanged" : NONE, seconds: call?.encode, lines: [found.signature && `signature: ${found.signature}`, found.rows > 1 && `${found.rows} calls: the backend takes one row each`, ...found.inputs.map(changed)] },
    { id: "policies", title: "Policies", name: policies.length ? `${policies.length}` : "none", lines: policies.length ? policies : ["neither the route nor the backend has policies"] },
    {
      id: "backend", title: decision?.steps.length ? "Graph" : "Backend", bytes: call?.message.size, health,
      name: decision?.steps.length ? stepCount(decision.steps) : backend || NONE,
      lines: [...(decision?.steps ?? []).map(planned), target && `${target.protocol}, model ${target.model}${target.version ? `, version ${target.version}` : ""}`, target?.error, ...found.calls.map((each) => `${each.operation} would be sent to ${each.endpoint}: ${each.message.path}, ${bytes(each.message.size)}`), ...unwell],
      below: (decision?.backends ?? []).filter((each) => each.backend !== backend).map((each) => ({ name: each.backend, why: each.role })),
    },
    { id: "encode", title: "Reply", name: found.error ? found.error.status : "not sent", bytes: found.error ? found.reply?.size : undefined, lines: [found.reply && `status ${found.reply.status}`] },
  ];
  stages[0].lines.push(...found.notes);
  return marked(stages, found.error?.stage, found.error && `${found.error.status} (${found.error.reason}): ${found.error.text}`, false);
}

function online(live, sent, listener, topology) {
  const span = (name) => live.spans?.find((each) => each.name === name);
  const tries = (live.spans ?? []).filter((each) => each.name === "try");
  const steps = (live.spans ?? []).filter((each) => each.name === "step");
  const call = sent.calls.at(-1);
  const reply = call?.replies.at(-1);
  const policies = policiesOf(topology, live.route, live.backend);
  const changes = [...(live.inputs ?? []).map((each) => `input ${changed(each)}`), ...(live.outputs ?? []).map((each) => `output ${changed(each)}`)];
  const isChanged = changes.some((each) => each.includes("→") || each.endsWith("added") || each.endsWith("left out"));
  const fitting = [span("fit"), span("fit reply")].filter(Boolean);
  const last = tries.at(-1);
  const stages = [
    { id: "transport", title: "Listener", name: listener?.name ?? "", bytes: call?.request.size, seconds: milliseconds(live.ms), lines: [listener?.address, call?.request.head[0], `${live.ms} ms in the gateway, ${seconds(sent.seconds)} for the client`] },
    { id: "decode", title: "Protocol", name: live.protocol, seconds: milliseconds(span("decode")?.ms), lines: [`${live.operation}`] },
    {
      id: "route", title: "Route", name: live.route || NONE,
      lines: [...(live.routes ?? []).map(([name, why]) => `${name}: ${why}`), live.route && `${live.route}: ${matches(topology, live.route)}`],
      below: (live.routes ?? []).map(([name, why]) => ({ name, why })),
    },
    { id: "fit", title: "Bridge", name: isChanged ? "changed" : "unchanged", seconds: fitting.length ? milliseconds(fitting.reduce((sum, each) => sum + each.ms, 0)) : null, lines: changes.length ? changes : ["tensors are unchanged"] },
    { id: "policies", title: "Policies", name: `${live.tries} ${live.tries === 1 ? "attempt" : "attempts"}`, seconds: live.queued_ms ? milliseconds(live.queued_ms) : null, lines: [`${live.tries} ${live.tries === 1 ? "attempt" : "attempts"}, ${live.queued_ms} ms in the queue`, ...policies] },
    {
      id: "backend", title: steps.length ? "Graph" : "Backend", name: steps.length ? stepCount(steps) : live.backend || NONE,
      seconds: steps.length ? null : milliseconds(last?.ms), bytes: steps.length ? null : last?.reply_bytes,
      lines: [...steps.map(done), live.model && `model ${live.model}${live.version ? `, version ${live.version}` : ""}`, ...tries.map((each) => `attempt ${each.number} at ${each.endpoint} (${each.protocol}): ${each.ms} ms, ${bytes(each.request_bytes)} out, ${bytes(each.reply_bytes) || "nothing"} back${each.error ? `; ${each.error}` : ""}`)],
    },
    { id: "encode", title: "Reply", name: live.status, seconds: milliseconds(span("encode")?.ms), bytes: reply?.size, lines: [sent.error, live.shortened && "the explanation was too long for a header, so it is shortened"] },
  ];
  const isFailed = live.status !== "OK";
  const stage = !isFailed ? null : last?.error || live.tries || steps.length ? "backend" : live.route ? "fit" : "route";
  return marked(stages, stage, isFailed && sent.error, true);
}

/** Mark the stage where an error ended the path and the stages that were not reached, or else the state of the backend. */
function marked(stages, stage, text, isSent) {
  const at = stages.findIndex((each) => each.id === stage);
  stages.forEach((each, place) => {
    each.lines = each.lines.filter(Boolean);
    each.state = at < 0 || place < at ? (each.health ?? "ok") : place === at ? "down" : "unreached";
  });
  if (at >= 0) {
    stages[at].lines.push(text);
    stages.at(-1).state = "down";
  } else if (!isSent) stages.at(-1).state = "unreached";
  return stages;
}

/** A word for the state of a stage with a problem; empty for other stages. */
const wordOfStage = ({ state, health }) => (state === "ok" ? "" : state === health ? `at present ${health}` : WORDS[state]);

function drawn(stages) {
  const most = Math.max(0, ...stages.map((each) => Math.min(each.below?.length ?? 0, MOST + 1)));
  const width = stages.length * WIDTH + (stages.length - 1) * GAP + 8;
  const height = HEIGHT + 8 + most * (SMALL + 6) + (most ? 10 : 0);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": stages.map((each) => `${[`${each.title}: ${each.name}`, wordOfStage(each)].filter(Boolean).join(", ")}`).join("; ") });
  stages.forEach((stage, at) => {
    const x = 4 + at * (WIDTH + GAP);
    if (at) {
      const isReached = stage.state !== "unreached";
      drawing.append(svg("path", { class: `arrow ${isReached ? stage.state : "unreached"}`, d: `M${x - GAP} ${4 + HEIGHT / 2}H${x - 2}m-5 -4l5 4l-5 4` }));
    }
    drawing.append(svg("g", { class: `stage ${stage.state}`, transform: `translate(${x} 4)` },
      svg("title", {}, [stage.title, stage.name, ...stage.lines].join("\n")),
      svg("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 6 }), svg("rect", { class: `state ${stage.state}`, width: 5, height: HEIGHT, rx: 2 }),
      svg("text", { class: "kind", x: 12, y: 16 }, stage.title),
      svg("text", { class: "title", x: 12, y: 33 }, fitted(String(stage.name), WIDTH - 18)),
      svg("text", { class: "numbers", x: 12, y: 51 }, time(stage) || bytes(stage.bytes)),
      svg("text", { class: "numbers", x: 12, y: 66 }, time(stage) && bytes(stage.bytes))));
    const below = stage.below ?? [];
    const shown = below.length > MOST ? [...below.slice(0, MOST), { name: `${below.length - MOST} more`, why: "" }] : below;
    shown.forEach((each, place) => {
      const y = HEIGHT + 16 + place * (SMALL + 6);
      drawing.append(
        svg("path", { class: "arrow unreached", d: `M${x + 10} ${place ? y - SMALL / 2 - 6 : HEIGHT + 4}V${y + SMALL / 2}H${x + 18}` }),
        svg("g", { class: "stage left", transform: `translate(${x + 18} ${y})` }, svg("title", {}, `${each.name}: ${each.why}`),
          svg("rect", { class: "box", width: WIDTH - 18, height: SMALL, rx: 4 }),
          svg("text", { class: "numbers", x: 8, y: 16 }, fitted(each.name, WIDTH - 34, "12px"))));
    });
  });
  return html("div", { class: "scroll", role: "region", "aria-label": "The path of the request", tabindex: "0" }, drawing);
}

function listed(stages) {
  return html("ol", { class: "stages" }, ...stages.map((stage) =>
    html("li", { class: stage.state }, html("strong", {}, `${stage.title}: ${stage.name}`),
      html("span", { class: "muted" }, ` ${[figures(stage), wordOfStage(stage)].filter(Boolean).join(" · ")}`),
      html("ul", {}, ...stage.lines.map((line) => html("li", {}, line))))));
}
