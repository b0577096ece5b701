// Creates elements. Text becomes text nodes only: clients choose names, which must never be parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return node;
}

/** An HTML element. An attribute whose value is a function listens to the event of this name. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set the text only if it differs, to keep selections and not to disturb screen readers. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The nodes for a text that marks code with backticks. */
export function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? html("code", {}, part) : part));
}

const pen = document.createElement("canvas").getContext("2d");

/** The beginning of `text` that fits into `width` pixels in the page's font, with this weight and size. */
export function fitted(text, width, font = "600 13px") {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  const isNarrow = (each) => pen.measureText(each).width <= width;
  if (isNarrow(text)) return text;
  let [low, high] = [0, Math.min(text.length, width)]; // a letter is at least one pixel wide
  while (high - low > 1) {
    const half = (low + high) >> 1;
    if (isNarrow(`${text.slice(0, half)}…`)) low = half;
    else high = half;
  }
  return `${text.slice(0, low)}…`;
}

/** A small button that runs its action only after a second press, which confirms the first. */
export function twice(text, press) {
  let isAsked = false;
  const ask = (wanted) => {
    isAsked = wanted;
    setText(button, wanted ? `Really ${text.toLowerCase()}` : text);
  };
  const button = html("button", {
    type: "button",
    class: "small",
    blur: () => ask(false),
    click: () => {
      if (isAsked) press();
      ask(!isAsked);
    },
  }, text);
  return button;
}
