"use strict";

// Data of the page: its rows, and their tree by file (if there are several), member (of a wheel), architecture, translation unit, template, kernel and part.

const CONTAINERS = "containers";
const UNKNOWN_UNIT = "unit unknown";
const NO_MEMBER = "no member";
const NO_KERNEL = "no kernel";
/** The children of a part. */
const NOTHING = [];

/** Decodes the data of the page: base64 of deflated JSON. */
async function unpack(text) {
  const packed = atob(text.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** Restores strings without their prefixes. `shared` has the length of the prefix that each shares with the previous one, in UTF-16 units. */
function strings(shared, rest) {
  const all = new Array(rest.length);
  let last = "";
  for (let i = 0; i < rest.length; i++) all[i] = last = last.slice(0, shared[i]) + rest[i];
  return all;
}

/** Restores numbers from differences between neighbours. */
function running(steps) {
  const all = new Int32Array(steps.length);
  for (let i = 0, sum = 0; i < steps.length; i++) all[i] = sum += steps[i];
  return all;
}

/** Restores sizes from their differences to those of `from`. */
function relative(from, differences, sign) {
  const all = new Float64Array(from.length);
  for (let i = 0; i < differences.length; i++) if (differences[i] !== null) all[i] = from[i] + sign * differences[i];
  return all;
}

/** The columns of all rows. Names are indices of `text`, which is sorted. `was` is 1 if the old file has the row. */
function columns(data) {
  const count = data.file.length;
  const rows = { count, text: strings(data.shared, data.rest), compared: data.compared };
  for (const name of ["input", "member", "arch", "unit", "template", "kernel", "part"]) rows[name] = running(data[name]);
  // Several files add a level to the tree.
  rows.several = rows.input.some((input) => rows.text[input] !== "");
  rows.packed = rows.member.some((member) => rows.text[member] !== "");
  rows.file = Float64Array.from(data.file);
  rows.inflated = relative(rows.file, data.inflated, 1);
  rows.oldFile = relative(rows.file, data.old_file, -1);
  rows.oldInflated = relative(rows.inflated, data.old_inflated, -1);
  rows.was = new Uint8Array(count);
  for (let i = 0; i < data.old_file.length; i++) rows.was[i] = data.old_file[i] === null ? 0 : 1;
  return rows;
}

/**
 * A node of the tree. Sums start as -0, which is not a small integer, unlike 0. Engines store small integers in a different form, and
 * would convert every node later.
 */
function node(kind, name, parent, first) {
  return {
    kind, name, parent, children: kind === "part" ? NOTHING : [], first, end: first, part: "", kernels: 0,
    file: -0, inflated: -0, oldFile: -0, oldInflated: -0, was: false, weight: -0, hits: 0,
  };
}

/**
 * Writes the steps from the root to the part of row `i`: alternating kinds and indices of names. Steps without information are omitted.
 */
function path(rows, i, withUnits, steps) {
  // If there is an empty name, it is the first.
  const none = rows.text[0] === "" ? 0 : -1;
  const arch = rows.arch[i];
  const unit = rows.unit[i];
  const template = rows.template[i];
  const kernel = rows.kernel[i];
  steps.length = 0;
  if (rows.several) steps.push("input", rows.input[i]);
  if (rows.member[i] !== none) steps.push("member", rows.member[i]);
  steps.push("arch", arch);
  if (unit !== none || ((kernel !== none || template !== none) && withUnits.has(arch))) steps.push("unit", unit);
  if (template !== none && template !== kernel) steps.push("template", template);
  if (kernel !== none) steps.push("kernel", kernel);
  steps.push("part", rows.part[i]);
}

/** The tree of all rows, which are sorted by their steps. */
function tree(rows, title) {
  const withUnits = new Set();
  for (let i = 0; i < rows.count; i++) if (rows.text[rows.unit[i]]) withUnits.add(rows.arch[i]);
  const root = node("root", title, null, 0);
  const nameless = { arch: CONTAINERS, unit: UNKNOWN_UNIT };
  // The nodes from the root to that of the previous row, and the indices of their names.
  const open = [root];
  const keys = [0];
  const steps = [];
  for (let i = 0; i < rows.count; i++) {
    path(rows, i, withUnits, steps);
    let depth = 0;
    while (depth + 1 < open.length && open[depth + 1].kind === steps[2 * depth] && keys[depth + 1] === steps[2 * depth + 1]) depth++;
    open.length = depth + 1;
    for (let at = 2 * depth; at < steps.length; at += 2) {
      const parent = open[open.length - 1];
      const child = node(steps[at], rows.text[steps[at + 1]] || nameless[steps[at]] || "", parent, i);
      parent.children.push(child);
      keys[open.length] = steps[at + 1];
      open.push(child);
    }
    add(open[open.length - 1], rows, i);
  }
  simplify(root);
  return root;
}

function add(to, rows, i) {
  to.end = i + 1;
  to.file += rows.file[i];
  to.inflated += rows.inflated[i];
  to.oldFile += rows.oldFile[i];
  to.oldInflated += rows.oldInflated[i];
  to.was ||= rows.was[i] === 1;
}

/**
 * Adds up the children. Replaces a template with one kernel by the kernel, and a kernel with one part by the part. Counts kernels.
 */
function simplify(at) {
  at.kernels = at.kind === "kernel" ? 1 : 0;
  if (at.kind === "part") at.part = at.name;
  const { children } = at;
  for (let i = 0; i < children.length; i++) {
    let child = children[i];
    simplify(child);
    if (child.kind === "template" && child.children.length === 1) {
      child = children[i] = child.children[0];
      child.parent = at;
    }
    at.end = child.end;
    at.file += child.file;
    at.inflated += child.inflated;
    at.oldFile += child.oldFile;
    at.oldInflated += child.oldInflated;
    at.was ||= child.was;
    at.kernels += child.kernels;
  }
  if (at.kind === "kernel" && children.length === 1) {
    at.part = children[0].name;
    at.children = NOTHING;
  }
}

/** The change of an entry since the old file: `same`, `grew`, `shrank`, `came` (added) or `went` (removed). */
function fate(entry, measure) {
  const now = entry.file > 0 || entry.inflated > 0;
  const before = entry.oldFile > 0 || entry.oldInflated > 0;
  if (now && !entry.was) return "came";
  if (before && !now) return "went";
  const change = changeOf(entry, measure);
  return change === 0 ? "same" : change > 0 ? "grew" : "shrank";
}

function oldOf(entry, measure) {
  return measure === "file" ? entry.oldFile : entry.oldInflated;
}

function changeOf(entry, measure) {
  return entry[measure] - oldOf(entry, measure);
}

/** A size as on the terminal, with at most four digits: `12.3M`. */
function bytes(size) {
  const units = ["", "K", "M", "G", "T", "P"];
  let unit = 0;
  let value = Math.abs(size);
  while (value >= 1023.5 && unit + 1 < units.length) {
    value /= 1024;
    unit++;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${size < 0 ? "−" : ""}${value.toFixed(digits)}${units[unit]}`;
}

function signed(size) {
  return size > 0 ? `+${bytes(size)}` : bytes(size);
}

function percent(part, whole) {
  if (!(whole > 0)) return "–";
  const value = (100 * part) / whole;
  return value > 0 && value < 0.1 ? "< 0.1%" : `${value.toFixed(value < 9.95 ? 1 : 0)}%`;
}

/** The change in percent, such as `+4.2%`; empty without an old size. */
function growth(entry, measure) {
  const old = oldOf(entry, measure);
  if (old === 0) return "";
  const value = (100 * changeOf(entry, measure)) / old;
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(Math.abs(value) < 9.95 ? 1 : 0)}%`;
}

/** The text of a change. Signs and words repeat the meaning of the colours. */
function changeText(entry, measure) {
  const what = fate(entry, measure);
  const change = signed(changeOf(entry, measure));
  if (what === "same") return "unchanged";
  if (what === "came") return `${change}, new`;
  if (what === "went") return `${change}, gone`;
  return `${change} (${growth(entry, measure)})`;
}

const MARKS = { same: "", grew: "▲ ", shrank: "▼ ", came: "✚ ", went: "✖ " };

/** An element with a class and a text. Kernel names enter the page only as text. */
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
