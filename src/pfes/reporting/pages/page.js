"use strict";

// Light and dark: the system's choice until the reader makes one.
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const chosen = root.style.colorScheme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = dark ? "light" : "dark";
});

// Tables: a click on a column's name sorts by it, another click turns the order around.
function key(row, column) {
  const text = row.cells[column].dataset.value;
  if (text === undefined || text === "") return null;
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function sortBy(table, column, head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row, column), row]);
  const known = rows.filter(([value]) => value !== null);
  const missing = rows.filter(([value]) => value === null);
  known.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
  body.append(...[...known, ...missing].map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.firstChild.addEventListener("click", () => sortBy(table, column, head));
  });
}

// Details of a run.
for (const button of document.querySelectorAll("[data-opens]")) {
  button.addEventListener("click", () => document.getElementById(button.dataset.opens).showModal());
}

// Charts.
const NS = "http://www.w3.org/2000/svg";
const COLORS = 7;
const DASHES = ["", "7 4", "2 3"];
const EDGE = { left: 76, right: 12, top: 10, bottom: 40 };
const HEIGHT = 280;
const DOT = 5; // radius of a dot: one at the end of an axis is not cut
const CLOSEST = 1e-6; // part of the whole axis that a zoom shows, at least

function element(parent, name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const color = (number) => `var(--s${number % COLORS})`;
const dash = (number) => DASHES[Math.floor(number / COLORS) % DASHES.length];
const exact = (value) => String(Number(value.toPrecision(6)));

function swatch(parent, number) {
  const svg = element(parent, "svg", { viewBox: "0 0 24 12", "aria-hidden": "true" });
  const look = { stroke: color(number), "stroke-width": 3, "stroke-dasharray": dash(number) };
  element(svg, "line", { x1: 0, x2: 24, y1: 6, y2: 6, ...look });
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

// Where a value lies between the ends of an axis, 0 to 1. A logarithmic axis has marks at powers of
// ten if there are two, else at round numbers.
function makeScale([low, high], log) {
  const turn = log ? Math.log10 : (value) => value;
  const [first, last] = [turn(low), turn(high)];
  const wide = log && last - first >= 2;
  const marks = wide ? ticks(first, last, last - first).map((mark) => 10 ** mark) : ticks(low, high, 5);
  return { at: (value) => (turn(value) - first) / (last - first), marks };
}

class Chart {
  constructor(figure) {
    this.data = JSON.parse(figure.querySelector("script").textContent);
    this.title = figure.querySelector("figcaption").textContent;
    this.hidden = new Set();
    this.at = null;
    const xs = this.data.lines.flatMap((line) => line.x);
    const half = this.data.bars ? this.barWidth() / 2 : 0;
    const [low, high] = [Math.min(...xs) - half, Math.max(...xs) + half];
    this.whole = low < high ? [low, high] : [low - 1, high + 1];
    this.range = this.whole;
    this.build(figure);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  barWidth() {
    const xs = this.data.lines[0].x;
    return xs.length > 1 ? xs[1] - xs[0] : 1;
  }

  build(figure) {
    this.plot = document.createElement("div");
    this.plot.className = "plot";
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    const help = "Arrow keys read the values, plus and minus zoom, escape shows all.";
    this.plot.setAttribute("aria-label", `Chart: ${this.title}. ${this.data.y} by ${this.data.x}. ${help}`);
    this.svg = element(this.plot, "svg", { role: "img", "aria-label": this.title });
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.setAttribute("role", "status");
    this.tip.hidden = true;
    this.plot.append(this.tip);
    this.legend = document.createElement("div");
    this.legend.className = "legend";
    this.data.lines.forEach((line, number) => {
      const button = this.button(line.name, () => this.toggle(number, button));
      button.setAttribute("aria-pressed", "true");
      swatch(button, number);
      button.prepend(button.lastChild);
    });
    this.reset = this.button("Show all", () => this.zoom(this.whole));
    this.reset.hidden = true;
    figure.append(this.plot, this.legend);
    this.listen();
  }

  button(text, action) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", action);
    this.legend.append(made);
    return made;
  }

  listen() {
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.from = this.valueAt(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => this.read(this.valueAt(event)));
    this.svg.addEventListener("pointerup", (event) => {
      const ends = [this.from, this.valueAt(event)].sort((a, b) => a - b);
      const far = ends[1] - ends[0] > (this.range[1] - this.range[0]) / 50;
      if (this.from !== undefined && far) this.zoom(ends);
      this.from = undefined;
      this.draw();
    });
    this.svg.addEventListener("pointercancel", () => { this.from = undefined; this.draw(); });
    this.svg.addEventListener("pointerleave", () => this.read(null));
    this.svg.addEventListener("dblclick", () => this.zoom(this.whole));
    this.plot.addEventListener("blur", () => this.read(null));
    this.plot.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    const xs = this.places();
    const now = this.at === null ? -1 : xs.indexOf(this.at);
    const [low, high] = this.range;
    const middle = this.at ?? (low + high) / 2;
    const part = (factor) => [middle - (middle - low) * factor, middle + (high - middle) * factor];
    if (event.key === "ArrowRight") this.read(xs[Math.min(now + 1, xs.length - 1)]);
    else if (event.key === "ArrowLeft") this.read(xs[Math.max(now - 1, 0)]);
    else if (event.key === "+") this.zoom(part(0.5));
    else if (event.key === "-") this.zoom(part(2));
    else if (event.key === "Escape") this.zoom(this.whole);
    else return;
    event.preventDefault();
  }

  toggle(number, button) {
    const shown = this.hidden.delete(number);
    if (!shown) this.hidden.add(number);
    button.setAttribute("aria-pressed", String(shown));
    this.draw();
  }

  zoom([low, high]) {
    if (high - low < (this.whole[1] - this.whole[0]) * CLOSEST) return;
    this.range = [Math.max(low, this.whole[0]), Math.min(high, this.whole[1])];
    this.reset.hidden = this.range[0] === this.whole[0] && this.range[1] === this.whole[1];
    this.draw();
  }

  shown() {
    return this.data.lines.map((line, number) => ({ ...line, number })).filter((line) => !this.hidden.has(line.number));
  }

  // The x values on show, each once.
  places() {
    const inside = (x) => x >= this.range[0] && x <= this.range[1];
    return [...new Set(this.shown().flatMap((line) => line.x.filter(inside)))].sort((a, b) => a - b);
  }

  valueAt(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    return this.range[0] + Math.min(1, Math.max(0, share)) * (this.range[1] - this.range[0]);
  }

  // Read the values at the place nearest to x.
  read(x) {
    const xs = x === null ? [] : this.places();
    this.at = xs.length ? xs.reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a)) : null;
    this.pointer = x;
    this.draw();
  }

  // A line's values at x, or at its last place before: [place, values].
  valuesAt(line, x) {
    const known = line.x.map((place, i) => [place, line.y[i]]).filter(([place, y]) => place <= x && y !== null);
    const last = Math.max(...known.map(([place]) => place));
    return [last, known.filter(([place]) => place === last).map(([, y]) => y)];
  }

  // The ends of the y axis: of what is on show between the ends of the x axis.
  extent(lines) {
    const [low, high] = this.range;
    const values = lines.flatMap((line) =>
      line.y.filter((y, i) => y !== null && line.x[i] >= low && line.x[i] <= high && (!this.data.log || y > 0)));
    if (!values.length) return [this.data.log ? 0.1 : 0, 1];
    let [least, most] = [Math.min(...values), Math.max(...values)];
    if (this.data.bars) least = 0;
    if (least === most) {
      const around = Math.abs(least) / 10 || 1;
      [least, most] = this.data.log ? [least / 2, most * 2] : [least - around, most + around];
    }
    const room = this.data.bars ? 0 : (most - least) * 0.04;
    return this.data.log ? [least / 1.1, most * 1.1] : [least - room, most + (most - least) * 0.04];
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const lines = this.shown();
    const across = makeScale(this.range, false);
    const up = makeScale(this.extent(lines), this.data.log);
    const inner = [width - EDGE.left - EDGE.right, HEIGHT - EDGE.top - EDGE.bottom];
    this.place = (x) => EDGE.left + across.at(x) * inner[0];
    this.level = (y) => EDGE.top + (1 - up.at(y)) * inner[1];
    this.axes(across, up, width);
    const [left, wide] = [EDGE.left - DOT, inner[0] + 2 * DOT];
    const clip = element(this.svg, "svg", {
      x: left, y: EDGE.top, width: wide, height: inner[1],
      viewBox: `${left} ${EDGE.top} ${wide} ${inner[1]}`, preserveAspectRatio: "none",
    });
    clip.style.height = `${inner[1]}px`;
    clip.style.width = `${wide}px`;
    lines.forEach((line, turn) => this.series(clip, line, turn, lines.length));
    this.overlay(clip, lines, inner);
  }

  axes(across, up, width) {
    for (const mark of up.marks) {
      const y = this.level(mark);
      element(this.svg, "line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y });
      element(this.svg, "text", { x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, exact(mark));
    }
    for (const mark of across.marks) {
      const x = this.place(mark);
      element(this.svg, "text", { x, y: HEIGHT - 22, "text-anchor": "middle" }, exact(mark));
    }
    const middle = (width + EDGE.left - EDGE.right) / 2;
    element(this.svg, "text", { x: middle, y: HEIGHT - 4, "text-anchor": "middle" }, this.data.x);
    const half = (HEIGHT - EDGE.bottom + EDGE.top) / 2;
    element(this.svg, "text", { transform: `translate(12 ${half}) rotate(-90)`, "text-anchor": "middle" }, this.data.y);
  }

  series(parent, line, turn, count) {
    if (this.data.bars) return this.columns(parent, line, turn, count);
    const known = line.x.map((x, i) => [x, line.y[i]]).filter(([, y]) => y !== null && (!this.data.log || y > 0));
    if (line.dots || known.length === 1) {
      const [r, opacity] = known.length > 20 ? [1.8, 0.5] : [DOT, 1];
      for (const [x, y] of known) {
        element(parent, "circle", { cx: this.place(x), cy: this.level(y), r, opacity, fill: color(line.number) });
      }
      return undefined;
    }
    const points = known.map(([x, y]) => `${this.place(x)} ${this.level(y)}`);
    const look = { stroke: color(line.number), "stroke-dasharray": dash(line.number) };
    return element(parent, "path", { d: points.length ? `M${points.join("L")}` : "", ...look });
  }

  columns(parent, line, turn, count) {
    const room = (this.place(this.barWidth()) - this.place(0)) * 0.86;
    line.x.forEach((x, i) => {
      const top = this.level(line.y[i]);
      element(parent, "rect", {
        x: this.place(x) - room / 2 + (room / count) * turn, y: top, width: room / count,
        height: Math.max(0, this.level(0) - top), fill: color(line.number),
      });
    });
  }

  overlay(parent, lines, inner) {
    if (this.from !== undefined && this.pointer !== null) {
      const [a, b] = [this.place(this.from), this.place(this.pointer)].sort((p, q) => p - q);
      element(parent, "rect", { class: "zone", x: a, y: EDGE.top, width: b - a, height: inner[1] });
    }
    this.tip.hidden = this.at === null;
    if (this.at === null) return;
    const x = this.place(this.at);
    element(parent, "line", { class: "cross", x1: x, x2: x, y1: EDGE.top, y2: EDGE.top + inner[1] });
    this.tip.replaceChildren(document.createTextNode(`${this.data.x} ${exact(this.at)}`));
    for (const line of lines) {
      const [place, values] = this.valuesAt(line, this.at);
      if (!values.length) continue;
      if (!this.data.bars) {
        const look = { cx: this.place(place), r: 3.5, fill: color(line.number) };
        for (const y of values) element(parent, "circle", { cy: this.level(y), ...look });
      }
      const entry = document.createElement("div");
      swatch(entry, line.number);
      const where = place === this.at ? "" : ` (at ${exact(place)})`;
      entry.append(`${line.name}: ${this.summary(values)}${where}`);
      this.tip.append(entry);
    }
    const right = x > EDGE.left + inner[0] / 2;
    this.tip.style.left = right ? `${EDGE.left}px` : "";
    this.tip.style.right = right ? "" : `${EDGE.right}px`;
  }

  // One value exactly; of a whole generation the ends.
  summary(values) {
    if (values.length === 1) return exact(values[0]);
    return `${values.length} from ${exact(Math.min(...values))} to ${exact(Math.max(...values))}`;
  }
}

for (const figure of document.querySelectorAll("figure.chart")) new Chart(figure);
