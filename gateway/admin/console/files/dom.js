// Making elements. Texts become text nodes only: names come from clients and must never be read as markup.

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

/** An HTML element. Attributes that are functions listen to the event of that name. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set the text if it differs, so that screen readers and selections are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A text in which `code` stands in backticks, as nodes. */
export function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? html("code", {}, part) : part));
}

const pen = document.createElement("canvas").getContext("2d");

/** As much of `text` as is at most so many pixels wide in the page's font, of this weight and size. */
export function fitted(text, width, font = "600 13px") {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  const isNarrow = (each) => pen.measureText(each).width <= width;
  if (isNarrow(text)) return text;
  let [low, high] = [0, Math.min(text.length, width)]; // a letter has at least a pixel
  while (high - low > 1) {
    const half = (low + high) >> 1;
    if (isNarrow(`${text.slice(0, half)}…`)) low = half;
    else high = half;
  }
  return `${text.slice(0, low)}…`;
}

/** A small button for what is not done by accident: pressed once it asks, pressed again it does it. */
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
