// A table that users can filter and sort. The page's address contains the filter and the order.

import { change, read } from "./address.js";
import { csvButton } from "./csv.js";
import { html, setText } from "./dom.js";
import { NONE } from "./format.js";

const SHOWN = 200; // rows; more are shown on demand
const LONG = 48; // characters; longer text is wrapped, so that the other columns stay visible

/**
 * A table without filter and order. `headings` and each of `rows` contain texts or nodes; `names[at]` is the class of the
 * cells in a column. On phones, each row is a card that shows `data-title` before each cell.
 */
export function plainTable({ label, caption, headings, names = [], rows }) {
  const body = rows.map((cells) => html("tr", { role: "row" }, ...cells.map((cell, at) =>
    markLong(html("td", { role: "cell", class: names[at], "data-title": headings[at] }, cell)))));
  return region(label, caption, headings.map((each, at) => html("th", { role: "columnheader", scope: "col", class: names[at] }, each)), html("tbody", { role: "rowgroup" }, ...body));
}

function markLong(cell) {
  cell.classList.toggle("long", cell.textContent.length > LONG);
  return cell;
}

/** The roles repeat the roles of the elements, which browsers drop if a row is shown as a card. */
function region(label, caption, headings, body) {
  return html("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
    html("table", { role: "table", "aria-label": caption ? undefined : label }, caption && html("caption", {}, caption),
      html("thead", { role: "rowgroup" }, html("tr", { role: "row" }, ...headings)), body));
}

/**
 * A table. `columns`: `{id, title, text(row), value?(row), fill?(cell, row), number?, wide?, unit?, saved?(row)}`: `text` is
 * the text that the table shows, filters by, and compares for changes. `value` is the sort value. `fill` puts nodes instead of
 * the text into the cell. The CSV file contains the `value` of numbers, with their `unit` in the heading, and otherwise the
 * `saved` text. `key(row)` identifies a row. Cells change in place, and rows keep their order while the pointer or the focus is
 * in the table.
 */
export class Table {
  constructor({ label, columns, key, sort = "", empty = "There is nothing to show." }) {
    this.columns = columns;
    this.key = key;
    this.defaultSort = sort;
    this.limit = SHOWN;
    this.all = [];
    this.rows = new Map();
    this.empty = empty;
    this.body = html("tbody", { role: "rowgroup" });
    this.headings = columns.map((column) => this.#heading(column));
    this.filter = html("input", {
      type: "search",
      class: "filter",
      placeholder: "Filter",
      "aria-label": `Filter ${label.toLowerCase()}`,
      autocomplete: "off",
      spellcheck: "false",
      value: read().parameters.get("filter") ?? "",
      input: () => this.#filtered(),
    });
    this.told = html("span", { class: "muted", role: "status" });
    this.more = html("button", { type: "button", hidden: true, click: () => this.#showMore() }, "Show more");
    this.nothing = html("p", { class: "muted", hidden: true });
    // cards have no headings for sorting
    this.order = html("select", { class: "order", "aria-label": `Sort ${label.toLowerCase()}`, change: () => this.#sortAs(this.order.value) },
      html("option", { value: "" }, "Sort"), ...columns.map((column) => html("option", { value: firstSort(column) }, `Sort by ${column.title.toLowerCase()}`)));
    this.csv = csvButton(label.toLowerCase(), label.toLowerCase().replaceAll(" ", "-"), () => this.#saved());
    this.controls = html("div", { class: "controls" }, this.filter, this.order, this.csv, this.told);
    this.element = html("div", {}, this.controls, region(label, "", this.headings, this.body), this.nothing, this.more);
  }

  #heading(column) {
    const button = html("button", { type: "button", click: () => this.#sortBy(column) }, column.title);
    return html("th", { role: "columnheader", scope: "col", class: column.number ? "number" : undefined }, button);
  }

  #sortBy(column) {
    const first = firstSort(column);
    this.#sortAs(this.#sort() !== first ? first : column.number ? column.id : `-${column.id}`);
  }

  #sortAs(sort) {
    change({ sort });
    this.#draw(true);
  }

  #sort() {
    return read().parameters.get("sort") ?? this.defaultSort;
  }

  #filtered() {
    change({ filter: this.filter.value });
    this.limit = SHOWN;
    this.#draw(true);
  }

  /** All rows that match, in the order of the table, for the CSV file. */
  #saved() {
    const of = (column, row) => {
      if (column.saved) return column.saved(row);
      return column.number && column.text(row) !== NONE ? column.value(row) : column.text(row);
    };
    const columns = this.columns.filter((each) => each.saved !== null);
    const headings = columns.map((each) => (each.unit ? `${each.title} (${each.unit})` : each.title));
    return [headings, ...this.#sorted(this.#matching()).map((row) => columns.map((column) => of(column, row)))];
  }

  #showMore() {
    this.limit *= 4;
    this.#draw(true);
  }

  /** Show these rows. */
  update(all) {
    this.all = all;
    this.#draw(false);
  }

  #matching() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this.all;
    return this.all.filter((row) => {
      const text = this.columns.map((column) => column.text(row)).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  #sorted(rows) {
    const wanted = this.#sort();
    const column = this.columns.find((each) => each.id === wanted.replace(/^-/, ""));
    this.order.value = column ? firstSort(column) : "";
    for (const [at, heading] of this.headings.entries()) {
      if (this.columns[at] !== column) heading.removeAttribute("aria-sort");
      else heading.setAttribute("aria-sort", wanted.startsWith("-") ? "descending" : "ascending");
    }
    if (!column) return rows;
    const value = column.value ?? column.text;
    const sign = wanted.startsWith("-") ? -1 : 1;
    return [...rows].sort((a, b) => sign * compare(value(a), value(b)));
  }

  #draw(isAsked) {
    const matching = this.#matching();
    const sorted = this.#sorted(matching);
    const isHeld = !isAsked && (this.body.matches(":hover") || this.body.contains(document.activeElement));
    const shown = isHeld ? this.#held(sorted) : sorted.slice(0, this.limit);
    const rows = new Map();
    for (const row of shown) {
      const key = this.key(row);
      const known = this.rows.get(key) ?? this.#row();
      this.#write(known, row);
      rows.set(key, known);
    }
    for (const [key, gone] of this.rows) if (!rows.has(key)) gone.element.remove();
    let at = 0;
    for (const { element } of rows.values()) {
      if (this.body.children[at] !== element) this.body.insertBefore(element, this.body.children[at] ?? null);
      at += 1;
    }
    this.rows = rows;
    const hidden = matching.length - rows.size;
    setText(this.told, this.#summary(rows.size, matching.length));
    this.more.hidden = hidden <= 0;
    this.nothing.hidden = rows.size > 0;
    setText(this.nothing, this.all.length ? "Nothing matches the filter." : this.empty);
  }

  #summary(shown, matching) {
    const all = this.all.length;
    if (shown < matching) return `${shown} of ${matching} shown; use a filter to see others`;
    return matching === all ? String(all) : `${matching} of ${all}`;
  }

  /** The rows in their current order, followed by the new rows. */
  #held(sorted) {
    const found = new Map(sorted.map((row) => [this.key(row), row]));
    const standing = [...this.rows.keys()].filter((key) => found.has(key)).map((key) => found.get(key));
    const known = new Set(standing);
    return [...standing, ...sorted.filter((row) => !known.has(row))].slice(0, this.limit);
  }

  #row() {
    const cells = this.columns.map((column) => {
      const name = [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ");
      return html("td", { role: "cell", class: name || undefined, "data-title": column.title });
    });
    return { element: html("tr", { role: "row" }, ...cells), cells, texts: [] };
  }

  #write(known, row) {
    for (const [at, column] of this.columns.entries()) {
      const text = column.text(row);
      if (known.texts[at] === text) continue;
      known.texts[at] = text;
      const cell = known.cells[at];
      if (column.fill) {
        cell.replaceChildren();
        column.fill(cell, row);
      } else cell.textContent = text;
      markLong(cell);
    }
  }
}

/** The initial order of a column. For numbers, the highest come first. */
const firstSort = (column) => (column.number ? `-${column.id}` : column.id);

function compare(a, b) {
  if (typeof a === "number" || typeof b === "number") return (a ?? -1) - (b ?? -1);
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
