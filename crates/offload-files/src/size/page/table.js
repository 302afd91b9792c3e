"use strict";

// The table: the rows of the treemap, grouped by the chosen level, with search and sorting.

const STEP = 500;

/** The columns that distinguish rows, by level. */
const LEVELS = {
  input: ["input"],
  member: ["input", "member"],
  arch: ["input", "member", "arch"],
  unit: ["input", "member", "arch", "unit"],
  template: ["input", "member", "arch", "unit", "template"],
  kernel: ["input", "member", "arch", "unit", "template", "kernel"],
  all: ["input", "member", "arch", "unit", "template", "kernel", "part"],
  part: ["part"],
};

/** The name of a row of the table: its innermost name. Bytes outside of kernels have the name of their part. */
function entryName(rows, i, level) {
  const text = (column) => rows.text[rows[column][i]];
  if (level === "part") return text("part");
  if (level === "input") return text("input");
  if (level === "member") return text("member") || NO_MEMBER;
  if (level === "arch") return text("arch") || CONTAINERS;
  const inKernel = text("kernel") || text("template");
  if (level === "unit") return text("unit") || (inKernel ? UNKNOWN_UNIT : text("part"));
  if (level === "template") return text("template") || text("kernel") || text("part");
  return inKernel || text("part");
}

/** The visible rows that match the search, as entries of the table. The rows of one entry are adjacent because rows are sorted, except for parts. */
function entriesOf(page) {
  const { rows, level, found } = page;
  const keys = LEVELS[level].map((name) => rows[name]);
  const byPart = new Map();
  const entries = [];
  const ofKernels = (level === "kernel" || level === "template") && rows.kernel.some((kernel) => rows.text[kernel] !== "");
  const inKernel = (i) => rows.text[rows.kernel[i]] !== "" || rows.text[rows.template[i]] !== "";
  let last = null;
  let rest = null;
  const same = (i) =>
    last !== null && keys.every((key) => key[i] === key[last.row]) && (["input", "member", "arch"].includes(level) || last.name === entryName(rows, i, level));
  const start = (i) => {
    last = { row: i, name: entryName(rows, i, level), file: 0, inflated: 0, oldFile: 0, oldInflated: 0, was: false, end: 0 };
    entries.push(last);
    return last;
  };
  for (const [first, end] of ranges(page.at)) {
    for (let i = first; i < end; i++) {
      if (found && found[i] === 0) continue;
      let entry;
      if (level === "part") {
        entry = byPart.get(rows.part[i]) ?? start(i);
        byPart.set(rows.part[i], entry);
      } else if (ofKernels && !inKernel(i)) {
        // Bytes outside of kernels form one row, the last.
        entry = rest ??= Object.assign(start(i), { name: NO_KERNEL, rest: true });
      } else {
        entry = same(i) ? last : start(i);
      }
      add(entry, rows, i);
    }
  }
  return entries;
}

/** For each row, whether every word of the search is in one of its columns; null without a search. */
function find(page) {
  const { rows } = page;
  const words = page.query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  page.lower ??= rows.text.map((text) => text.toLowerCase());
  const holds = words.map((word) => Uint8Array.from(page.lower, (text) => (text.includes(word) ? 1 : 0)));
  const keys = LEVELS.all.map((name) => rows[name]);
  const found = new Uint8Array(rows.count);
  for (let i = 0; i < rows.count; i++) found[i] = holds.every((hit) => keys.some((key) => hit[key[i]] === 1)) ? 1 : 0;
  return found;
}

/** Counts the matching rows below each node of the tree. The treemap dims nodes without matches. */
function countHits(page) {
  const { found } = page;
  const before = new Uint32Array(page.rows.count + 1);
  if (found) found.forEach((hit, i) => (before[i + 1] = before[i] + hit));
  const count = (at) => {
    at.hits = before[at.end] - before[at.first];
    at.children.forEach(count);
  };
  count(page.root);
}

/** The columns: their key, title, and the text of a cell. */
function columnsOf(page) {
  const text = (name) => (entry) => page.rows.text[page.rows[name][entry.row]];
  const list = [{ key: "name", title: TITLES[page.level], name: true }];
  const keys = LEVELS[page.level];
  if (keys.length > 1 && page.rows.several) list.push({ key: "input", title: "File", text: text("input") });
  if (keys.length > 2 && page.rows.packed) list.push({ key: "member", title: "Member", text: text("member") });
  if (keys.length > 3) list.push({ key: "arch", title: "Architecture", text: text("arch") });
  if (keys.length > 4) list.push({ key: "unit", title: "Unit", text: text("unit") });
  if (keys.length > 6) list.push({ key: "part", title: "Part", text: text("part") });
  list.push({ key: "file", title: "In file", number: true, text: (entry) => bytes(entry.file) });
  list.push({ key: "inflated", title: "Uncompressed", number: true, text: (entry) => bytes(entry.inflated) });
  if (page.compared) list.push({ key: "change", title: "Change", number: true, change: true });
  list.push({ key: "share", title: "Share", number: true, share: true });
  return list;
}

const TITLES = {
  input: "File", member: "Member", arch: "Architecture", unit: "Translation unit", template: "Template", kernel: "Kernel", all: "Kernel", part: "Part",
};

/** The sort key of a column, as a function of an entry. */
function sorter(page, key) {
  const { rows, measure } = page;
  if (key === "name") return (entry) => entry.name;
  if (key === "change") return (entry) => changeOf(entry, measure);
  if (key === "share") return (entry) => entry[measure];
  if (key === "file" || key === "inflated") return (entry) => entry[key];
  // Indices of names have the order of the names.
  return (entry) => rows[key][entry.row];
}

function sortEntries(page, entries) {
  const by = sorter(page, page.sort.key);
  const turn = page.sort.down ? -1 : 1;
  const keyed = entries.map((entry) => ({ entry, key: by(entry), row: entry.row }));
  const last = (each) => (each.entry.rest ? 1 : 0);
  keyed.sort((a, b) => last(a) - last(b) || (a.key < b.key ? -turn : a.key > b.key ? turn : a.row - b.row));
  return keyed.map((each) => each.entry);
}

function drawHead(page, list) {
  const row = element("tr");
  for (const column of list) {
    const cell = element("th", column.number ? "number" : "");
    cell.scope = "col";
    const sorted = page.sort.key === column.key;
    cell.setAttribute("aria-sort", sorted ? (page.sort.down ? "descending" : "ascending") : "none");
    const button = element("button", "", column.title);
    button.type = "button";
    button.dataset.key = column.key;
    button.append(element("span", "arrow", sorted ? (page.sort.down ? " ▾" : " ▴") : ""));
    button.lastChild.setAttribute("aria-hidden", "true");
    cell.append(button);
    row.append(cell);
  }
  document.getElementById("head").replaceChildren(row);
}

function drawRow(page, list, entry) {
  const row = element("tr", page.compared ? fate(entry, page.measure) : "");
  for (const column of list) {
    const cell = element(column.name ? "th" : "td", column.number ? "number" : "");
    if (column.name) {
      cell.scope = "row";
      // Bytes outside of kernels look different from a kernel of the same name.
      const { kernel, template } = page.rows;
      const named = page.rows.text[kernel[entry.row]] || page.rows.text[template[entry.row]] || ["input", "member", "arch", "part"].includes(page.level);
      const button = element("button", named ? "name" : "name rest", entry.name);
      button.type = "button";
      button.dataset.row = entry.row;
      cell.append(button);
    } else if (column.share) {
      cell.append(element("span", "", percent(entry[page.measure], page.at[page.measure])));
      const bar = element("span", "share");
      bar.style.width = `${Math.min(100, (100 * entry[page.measure]) / Math.max(1, page.at[page.measure]))}%`;
      bar.setAttribute("aria-hidden", "true");
      cell.append(bar);
      cell.classList.add("has-share");
    } else if (column.change) {
      cell.append(element("span", "mark", MARKS[fate(entry, page.measure)]), changeText(entry, page.measure));
      cell.classList.add("change");
    } else {
      cell.textContent = column.text(entry);
      if (["input", "member", "unit"].includes(column.key)) {
        cell.className = "long";
        cell.title = cell.textContent;
      }
    }
    row.append(cell);
  }
  return row;
}

function drawFoot(page, list, entries) {
  const sum = { file: 0, inflated: 0, oldFile: 0, oldInflated: 0, was: false, row: 0 };
  for (const entry of entries) {
    for (const key of ["file", "inflated", "oldFile", "oldInflated"]) sum[key] += entry[key];
    sum.was ||= entry.was;
  }
  const row = element("tr");
  for (const column of list) {
    const cell = element(column.name ? "th" : "td", column.number ? "number" : "");
    if (column.name) {
      cell.scope = "row";
      cell.textContent = "Sum";
    } else if (column.change) cell.textContent = changeText(sum, page.measure);
    else if (column.share) cell.textContent = percent(sum[page.measure], page.at[page.measure]);
    else if (column.number) cell.textContent = column.text(sum);
    row.append(cell);
  }
  document.getElementById("foot").replaceChildren(row);
}

/** Draws the table. */
function drawTable(page) {
  const entries = sortEntries(page, entriesOf(page));
  const list = columnsOf(page);
  const shown = entries.slice(0, page.shown);
  drawHead(page, list);
  document.getElementById("body").replaceChildren(...shown.map((entry) => drawRow(page, list, entry)));
  drawFoot(page, list, entries);
  const number = (count) => count.toLocaleString("en");
  const where = page.at === page.root ? "" : ` in ${page.at.name}`;
  const some = shown.length < entries.length ? `the first ${number(shown.length)} of ` : "";
  document.getElementById("count").textContent = `${some}${number(entries.length)} ${entries.length === 1 ? "row" : "rows"}${page.found ? " found" : ""}${where}`;
  const title = list.find((column) => column.key === page.sort.key)?.title;
  document.getElementById("caption").textContent = `Sizes${where}, sorted by “${title}”, ${page.sort.down ? "descending" : "ascending"}`;
  const more = document.getElementById("more");
  more.hidden = shown.length === entries.length;
  more.textContent = `Show ${number(Math.min(STEP, entries.length - shown.length))} more`;
}

/** Adds the handlers of mouse and keyboard to the table. */
function listenToTable(page) {
  document.getElementById("head").addEventListener("click", (event) => {
    const key = event.target.closest("button")?.dataset.key;
    if (!key) return;
    // Names start in ascending order, sizes in descending order.
    const first = !["name", "input", "member", "arch", "unit", "part"].includes(key);
    page.sort = { key, down: page.sort.key === key ? !page.sort.down : first };
    page.shown = STEP;
    drawTable(page);
    document.querySelector(`#head button[data-key="${key}"]`).focus();
  });
  document.getElementById("body").addEventListener("click", (event) => {
    const row = event.target.closest("button.name")?.dataset.row;
    if (row === undefined) return;
    page.zoom(page.nodeOf(Number(row)), { scroll: true });
  });
  document.getElementById("rows").addEventListener("change", (event) => {
    page.level = event.target.value;
    page.shown = STEP;
    const there = columnsOf(page).some((column) => column.key === page.sort.key);
    if (!there) page.sort = { key: page.measure, down: true };
    drawTable(page);
  });
  document.getElementById("more").addEventListener("click", () => {
    const from = page.shown;
    page.shown += STEP;
    drawTable(page);
    document.querySelectorAll("#body tr")[from]?.querySelector("button")?.focus();
  });
}
