// Draws a run: rows over simulated time. Wheel: zoom. Drag: pan. Wheel over the names: scroll.
"use strict";
const run = JSON.parse(document.getElementById("run").textContent);
const byId = (id) => document.getElementById(id);

// ---- what is shown above the rows

const count = (number) => Math.round(number).toLocaleString("en-US");
const seconds = (ns, digits = 3) => `${(ns / 1e9).toFixed(digits)} s`;
const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};

document.title = `${run.name}: Tapeworks simulation`;
byId("name").textContent = run.name;
const failed = run.violations.length;
byId("verdict").textContent = failed === 0 ? "no violation" : failed === 1 ? "1 violation" : `${failed} violations`;
byId("verdict").classList.toggle("bad", failed > 0);
const figure = (name, value, style) => {
  const pair = make("div");
  pair.append(make("dt", name), make("dd", value, style));
  byId("figures").append(pair);
};
figure("seed", String(run.seed));
figure("hash", run.hash, "code");
figure("simulated", seconds(run.end_ns, 1));
figure("steps", count(run.steps));
byId("story").textContent = run.story;
for (const [at, text] of run.violations) {
  const item = make("li");
  item.append(make("b", seconds(at)), text);
  item.tabIndex = 0;
  item.addEventListener("click", () => show(at - 1e9, at + 1e9));
  item.addEventListener("keydown", (event) => event.key === "Enter" && show(at - 1e9, at + 1e9));
  byId("violations").append(item);
}
const venues = run.groups.slice(1).filter((group) => group.rows[0].name === "line A");
document.querySelector("#configuration summary").textContent =
  `configuration: ${venues.map((venue) => venue.name).join(", ")}; ${run.configuration.map(([name, value]) => `${name}: ${value}`).join("; ")}`;
for (const [name, value] of [...run.configuration, ...venues.map((venue) => [venue.name, venue.hint]), ["counts", run.counts.map(([name, value]) => `${name} ${value}`).join(", ")]]) {
  const row = make("tr");
  row.append(make("th", name), make("td", value));
  byId("values").append(row);
}
byId("configuration").addEventListener("toggle", () => size());

// ---- the rows

/** The numbers of a column: a negative one repeats the number before it. */
function numbers(runs) {
  const all = [];
  let before = 0;
  for (const number of runs) {
    if (number < 0) for (let left = -number; left > 0; left--) all.push(before);
    else all.push((before = number));
  }
  return all;
}

const LANE = 13, HEAT = 8, THIN = 3, MOST_LANES = 5, GROUP = 18, NAMES = 190, AXIS = 24, OVERVIEW = 16;
/** Columns that have a thin strip of their own, below the first. */
const THIN_STRIPS = [["good", ["answers"]], ["bad", ["lost", "damaged", "dropped at a full buffer", "failures", "given up"]]];

/** A strip whose shade is the sum of these columns. */
function strip(columns, colour) {
  const most = Math.max(...columns.map((column) => column.numbers.length));
  const all = Array.from({ length: most }, (_, place) => columns.reduce((sum, column) => sum + (column.numbers[place] || 0), 0));
  const seen = all.filter((number) => number > 0).sort((one, other) => one - other);
  const sums = new Float64Array(all.length + 1);
  all.forEach((number, place) => (sums[place + 1] = sums[place] + number));
  // The strongest shade is for all but the highest two in a hundred.
  return { colour, sums, most: seen[Math.floor(seen.length * 0.98)] || 1 };
}


const rows = [];
let height = 0;
for (const group of run.groups) {
  rows.push({ group, top: height, height: GROUP });
  height += GROUP;
  for (const row of group.rows) {
    row.columns.forEach((column) => (column.numbers = numbers(column.runs)));
    // Bars at the same time lie in lanes of their own.
    const ends = [];
    for (const bar of row.bars) {
      let lane = ends.findIndex((end) => end <= bar.from);
      if (lane < 0) lane = ends.length < MOST_LANES ? ends.length : MOST_LANES - 1;
      ends[lane] = bar.to;
      bar.lane = lane;
    }
    const isCount = (column) => !column.is_level;
    const strips = row.columns.slice(0, 1).filter(isCount).map((column) => strip([column], "heat"));
    for (const [colour, names] of THIN_STRIPS) {
      const columns = row.columns.slice(1).filter((column) => isCount(column) && names.includes(column.name));
      if (columns.length) strips.push(strip(columns, colour));
    }
    const thin = (THIN + 1) * Math.max(0, strips.length - 1);
    const inner = Math.max(LANE + thin, (strips.length ? HEAT + 1 + thin : 0) + LANE * ends.length);
    // Without bars the first strip has their room too.
    const wide = ends.length ? HEAT : inner - thin - 1;
    rows.push({ row, strips, wide, lanes: strips.length ? wide + 1 + thin : 0, group, top: height, height: inner + 4 });
    height += inner + 4;
  }
}

// ---- what is visible

const canvas = byId("plot"), tip = byId("tip"), pen = canvas.getContext("2d");
let from = 0, to = run.end_ns, scrolled = 0, width = 0, tall = 0, pointer = null;
let colours = {};
const LEAST_NS = 2e5;

function clamp() {
  const span = Math.min(Math.max(to - from, LEAST_NS), run.end_ns);
  from = Math.min(Math.max(from, 0), run.end_ns - span);
  to = from + span;
  scrolled = Math.max(0, Math.min(scrolled, height - (tall - AXIS - OVERVIEW)));
}
function show(first, last) {
  [from, to] = [first, last];
  draw();
}
function zoom(factor, at) {
  const span = Math.min(Math.max((to - from) * factor, LEAST_NS), run.end_ns);
  const part = (at - from) / (to - from);
  from = at - span * part;
  to = from + span;
  draw();
}
const x = (ns) => NAMES + ((ns - from) / (to - from)) * (width - NAMES);
const time = (left) => from + ((left - NAMES) / (width - NAMES)) * (to - from);

// ---- drawing

const step = (span, most) => {
  for (let unit = 1e3; ; unit *= 10) for (const times of [1, 2, 5]) if (span / (unit * times) <= most) return unit * times;
};
const digits = (ns) => Math.max(0, Math.min(6, 9 - Math.floor(Math.log10(ns))));
const shortened = (text, room) => {
  if (pen.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "\u2026").width <= room) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "\u2026" : "";
};
const FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, Arial, sans-serif";

function drawStrip({ colour, sums, most }, top, high) {
  const every = run.every_ns, last = sums.length - 1;
  let [start, level] = [NAMES, 0];
  const flush = (left) => {
    if (level > 0) {
      pen.globalAlpha = 0.14 + 0.86 * (level / 12);
      pen.fillRect(start, top, left - start, high);
    }
    start = left;
  };
  pen.fillStyle = colours[colour];
  for (let left = NAMES; left < width; left++) {
    const first = Math.max(0, Math.floor(time(left) / every));
    const end = Math.min(last, Math.max(first + 1, Math.ceil(time(left + 1) / every)));
    const mean = end > first ? (sums[end] - sums[first]) / (end - first) : 0;
    const shade = mean > 0 ? Math.max(1, Math.min(12, Math.round(12 * Math.sqrt(mean / most)))) : 0;
    if (shade !== level) {
      flush(left);
      level = shade;
    }
  }
  flush(width);
  pen.globalAlpha = 1;
}

function drawRow({ row, strips, wide, lanes, height: high }, top) {
  strips.forEach((strip, place) => {
    if (place === 0) drawStrip(strip, top + 2, wide);
    else drawStrip(strip, top + 2 + wide + 1 + (place - 1) * (THIN + 1), THIN);
  });
  for (const bar of row.bars) {
    if (bar.to < from || bar.from > to) continue;
    const left = Math.max(NAMES, x(bar.from)), right = Math.min(width, Math.max(x(bar.to), left + 1.5));
    const under = top + 2 + lanes + bar.lane * LANE;
    pen.fillStyle = colours[bar.kind] || colours.silent;
    pen.fillRect(left, under, right - left, LANE - 1);
    if (right - left > 18) {
      pen.fillStyle = "#fff";
      pen.fillText(shortened(bar.label, right - left - 8), left + 4, under + LANE / 2);
    }
  }
  let [last, crowd] = [-Infinity, 0];
  for (const mark of row.marks) {
    if (mark.at < from || mark.at > to) continue;
    const [centre, size] = [x(mark.at), mark.count > 1 ? 5 : 4];
    // Those that would hide each other lie a little higher and lower.
    crowd = centre - last < 5 ? crowd + 1 : 0;
    last = centre;
    const middle = top + high / 2 + [0, -4, 4][crowd % 3];
    pen.beginPath();
    pen.moveTo(centre, middle - size - 1);
    pen.lineTo(centre + size, middle);
    pen.lineTo(centre, middle + size + 1);
    pen.lineTo(centre - size, middle);
    pen.closePath();
    pen.fillStyle = colours[mark.kind] || colours.note;
    pen.fill();
    pen.lineWidth = 1;
    pen.strokeStyle = colours.panel;
    pen.stroke();
  }
}

function drawAxis() {
  const unit = step(to - from, Math.max(1, (width - NAMES) / 95));
  pen.fillStyle = colours.quiet;
  pen.textAlign = "center";
  for (let at = Math.ceil(from / unit) * unit; at <= to; at += unit) {
    pen.fillStyle = colours.line;
    pen.fillRect(Math.round(x(at)), AXIS - 4, 1, tall - AXIS - OVERVIEW + 4);
    pen.fillStyle = colours.quiet;
    if (x(at) < width - 22) pen.fillText(`${(at / 1e9).toFixed(digits(unit))} s`, Math.max(x(at), NAMES + 14), AXIS / 2);
  }
  pen.textAlign = "left";
  pen.fillText(`${seconds(from)} to ${seconds(to)}`, 8, AXIS / 2);
}

/** The whole run in a strip, with what is visible of it. */
function drawOverview() {
  const top = tall - OVERVIEW, all = (ns) => NAMES + (ns / run.end_ns) * (width - NAMES);
  pen.fillStyle = colours.group;
  pen.fillRect(0, top, width, OVERVIEW);
  pen.fillStyle = colours.quiet;
  pen.fillText("whole run", 8, top + OVERVIEW / 2);
  for (const { row } of rows) {
    for (const bar of row ? row.bars : []) {
      if (!["out", "lossy", "garbled", "burst"].includes(bar.kind)) continue;
      pen.fillStyle = colours[bar.kind];
      pen.fillRect(all(bar.from), top + 5, Math.max(1, all(bar.to) - all(bar.from)), OVERVIEW - 9);
    }
  }
  pen.strokeStyle = colours.text;
  pen.lineWidth = 1.5;
  pen.strokeRect(all(from) + 1, top + 1.5, Math.max(3, all(to) - all(from) - 2), OVERVIEW - 3);
  pen.fillStyle = colours.violation;
  for (const [at] of run.violations) pen.fillRect(all(at) - 1, top, 2, OVERVIEW);
}

function draw() {
  if (width <= NAMES) return;
  clamp();
  pen.clearRect(0, 0, width, tall);
  pen.font = `11px ${FONT}`;
  pen.textBaseline = "middle";
  drawAxis();
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, width, tall - AXIS - OVERVIEW);
  pen.clip();
  for (const entry of rows) {
    const top = AXIS + entry.top - scrolled;
    if (top + entry.height < AXIS || top > tall) continue;
    if (!entry.row) {
      pen.fillStyle = colours.group;
      pen.fillRect(0, top, width, entry.height);
      pen.fillStyle = colours.text;
      pen.font = `650 12px ${FONT}`;
      const name = entry.group.name;
      pen.fillText(name, 8, top + entry.height / 2);
      const room = 8 + pen.measureText(name).width + 10;
      pen.font = `11px ${FONT}`;
      pen.fillStyle = colours.quiet;
      pen.fillText(shortened(entry.group.hint, width - room - 8), room, top + entry.height / 2);
      continue;
    }
    pen.save();
    pen.beginPath();
    pen.rect(NAMES, top, width - NAMES, entry.height);
    pen.clip();
    drawRow(entry, top);
    pen.restore();
    pen.fillStyle = colours.quiet;
    pen.fillText(shortened(entry.row.name, NAMES - 26), 18, top + entry.height / 2);
    pen.fillStyle = colours.line;
    pen.fillRect(0, top + entry.height - 0.5, width, 0.5);
    pen.fillRect(NAMES - 1, top, 1, entry.height);
  }
  pen.restore();
  const room = tall - AXIS - OVERVIEW;
  if (height > room) {
    pen.fillStyle = colours.faint;
    pen.fillRect(width - 5, AXIS + (scrolled / height) * room, 4, (room / height) * room);
  }
  pen.fillStyle = colours.line;
  pen.fillRect(NAMES - 1, 0, 1, AXIS);
  for (const [at] of run.violations) {
    if (at < from || at > to) continue;
    pen.fillStyle = colours.violation;
    pen.fillRect(x(at) - 0.75, 12, 1.5, tall - OVERVIEW - 12);
    pen.beginPath();
    pen.moveTo(x(at) - 6, 2);
    pen.lineTo(x(at) + 6, 2);
    pen.lineTo(x(at), 14);
    pen.fill();
  }
  if (pointer && pointer.left > NAMES) {
    pen.fillStyle = colours.faint;
    pen.fillRect(pointer.left, AXIS, 1, tall - AXIS - OVERVIEW);
  }
  drawOverview();
}

// ---- the tooltip

const length = (ns) => (ns >= 1e9 ? seconds(ns) : ns >= 1e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e3).toFixed(1)} us`);
const line = (text, kind, style) => {
  const element = make("p", undefined, style);
  if (kind) {
    const chip = make("i");
    chip.style.background = colours[kind] || colours.note;
    element.append(chip);
  }
  element.append(text);
  tip.append(element);
};

function point() {
  const entry = pointer && rows.find(({ top, height }) => {
    const above = AXIS + top - scrolled;
    return pointer.top >= Math.max(AXIS, above) && pointer.top < Math.min(above + height, tall - OVERVIEW);
  });
  const inside = pointer && pointer.left > NAMES && pointer.top < tall - OVERVIEW;
  const near = inside ? run.violations.filter(([at]) => Math.abs(x(at) - pointer.left) < 6) : [];
  tip.hidden = !(entry && (entry.row || pointer.left <= NAMES)) && !near.length;
  if (tip.hidden) return;
  tip.replaceChildren();
  const at = time(pointer.left);
  if (inside) line(`${seconds(at, 6)}`, null, "when");
  near.slice(0, 2).forEach(([at, text]) => line(`VIOLATION at ${seconds(at)}: ${text.length > 160 ? text.slice(0, 160) + "\u2026" : text}`, null, "violation"));
  if (near.length > 2) line(`and ${near.length - 2} more violations`, null, "violation");
  if (entry && entry.row) {
    const { row, group } = entry;
    line(`${group.name}: ${row.name}`, null, inside ? "quiet" : "when");
    if (!inside) line(row.hint, null, "quiet");
    if (inside) {
      const slack = ((to - from) / (width - NAMES)) * 6;
      for (const bar of row.bars) {
        if (bar.from > at + slack / 3 || bar.to < at - slack / 3) continue;
        line(`${bar.label}: ${seconds(bar.from)} to ${seconds(bar.to)} (${length(bar.to - bar.from)})`, bar.kind);
      }
      const marks = row.marks.filter((mark) => Math.abs(mark.at - at) <= slack);
      for (const mark of marks.slice(0, 8)) line(`${seconds(mark.at, 6)} ${mark.label}${mark.count > 1 ? ` (${count(mark.count)} times)` : ""}`, mark.kind);
      if (marks.length > 8) line(`and ${marks.length - 8} more`, null, "quiet");
      const place = Math.floor(at / run.every_ns);
      const values = row.columns.filter((column) => column.numbers[place] > 0);
      const counts = values.filter((column) => !column.is_level).map((column) => `${column.name} ${count(column.numbers[place])}`);
      if (counts.length) {
        const rate = values[0] === row.columns[0] ? ` (${count((values[0].numbers[place] * 1e9) / run.every_ns)} a second)` : "";
        line(`${counts.join(", ")} in ${length(run.every_ns)}${rate}`);
      }
      const levels = values.filter((column) => column.is_level).map((column) => `${column.name} ${count(column.numbers[place])}`);
      if (levels.length) line(levels.join(", "));
    }
  } else if (entry) line(`${entry.group.name}: ${entry.group.hint}`);
  const { offsetWidth: wide, offsetHeight: high } = tip;
  tip.style.left = `${Math.max(4, pointer.left + 16 + wide > width ? pointer.left - wide - 14 : pointer.left + 16)}px`;
  tip.style.top = `${Math.max(4, Math.min(pointer.top + 14, tall - high - 4))}px`;
}

// ---- what a person does

let dragged = null;
const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return { left: event.clientX - box.left, top: event.clientY - box.top };
};
const jump = ({ left }) => {
  const [span, at] = [to - from, ((left - NAMES) / (width - NAMES)) * run.end_ns];
  show(at - span / 2, at + span / 2);
};
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  pointer = place(event);
  const turned = event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY;
  if (pointer.left < NAMES || event.shiftKey) {
    scrolled += turned || event.deltaX;
    draw();
  } else zoom(Math.exp(turned * 0.0016), time(pointer.left));
  point();
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  const at = place(event);
  dragged = { ...at, from, to, scrolled, jumps: at.top > tall - OVERVIEW };
  if (dragged.jumps) jump(at);
});
canvas.addEventListener("pointermove", (event) => {
  pointer = place(event);
  if (dragged && dragged.jumps) jump(pointer);
  else if (dragged) {
    const moved = ((pointer.left - dragged.left) / (width - NAMES)) * (dragged.to - dragged.from);
    scrolled = dragged.scrolled - (pointer.top - dragged.top);
    show(dragged.from - moved, dragged.to - moved);
  } else draw();
  point();
});
const release = () => (dragged = null);
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => {
  pointer = null;
  draw();
  point();
});
const middle = () => (from + to) / 2;
byId("closer").addEventListener("click", () => zoom(0.5, middle()));
byId("wider").addEventListener("click", () => zoom(2, middle()));
byId("whole").addEventListener("click", () => show(0, run.end_ns));
document.addEventListener("keydown", (event) => {
  const span = to - from;
  const keys = {
    "+": () => zoom(0.5, middle()), "=": () => zoom(0.5, middle()), "-": () => zoom(2, middle()), 0: () => show(0, run.end_ns),
    ArrowLeft: () => show(from - span / 8, to - span / 8), ArrowRight: () => show(from + span / 8, to + span / 8),
    ArrowUp: () => { scrolled -= 40; draw(); }, ArrowDown: () => { scrolled += 40; draw(); },
  };
  if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    keys[event.key]();
  }
});

// ---- theme, size, legend

const LEGEND = [
  ["out", "out"], ["lossy", "lossy, slow or failing"], ["garbled", "damaged, or a wrong clock"], ["silent", "called silent"],
  ["awaited", "gap awaited"], ["requesting", "gap being requested"], ["joining", "joining"], ["stale", "stale, or writes fail"],
  ["running", "running, connected"], ["given-up", "messages named as missing", "mark"], ["good", "good", "mark"], ["bad", "failed", "mark"],
  ["session", "session", "mark"], ["requested", "requested", "mark"], ["violation", "violation", "mark"],
];
const system = matchMedia("(prefers-color-scheme: light)");
let theme = "system";
function paint() {
  const is = theme === "system" ? (system.matches ? "light" : "dark") : theme;
  document.documentElement.dataset.theme = is;
  const style = getComputedStyle(document.documentElement);
  const names = ["ground", "panel", "group", "line", "text", "quiet", "faint", "heat", "violation", "out", "lossy", "garbled", "burst", "silent", "awaited", "requesting", "joining", "stale", "running", "connected", "good", "bad", "note", "session", "given-up", "requested"];
  colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  Object.assign(colours, { start: colours.good, end: colours.good, refused: colours.bad, cut: colours.bad, left: colours.note, contradicted: colours.bad });
  byId("legend").replaceChildren(...LEGEND.map(([kind, text, form]) => {
    const item = make("span"), chip = make("i", undefined, form);
    chip.style.background = colours[kind];
    item.append(chip, text);
    return item;
  }), make("span", "Wheel: zoom. Drag: pan. Wheel over the names: scroll."));
  byId("theme").textContent = `theme: ${theme}`;
  draw();
}
byId("theme").addEventListener("click", () => {
  theme = { system: "light", light: "dark", dark: "system" }[theme];
  paint();
});
system.addEventListener("change", paint);
function size() {
  const box = byId("chart").getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  [width, tall] = [Math.floor(box.width) - 2, Math.floor(box.height) - 2];
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(tall * ratio)];
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw();
}
new ResizeObserver(size).observe(byId("chart"));
paint();
size();
