"use strict";

// The page: its state, its controls, and its start.

/** The innermost node of a row of the table: the kernel, unit or architecture. */
function nodeOfRow(page, row) {
  const kind = { part: 0, input: 1, member: 2, arch: 3, unit: 4, template: 5, kernel: 6, all: 7 }[page.level];
  const depth = { input: 1, member: 2, arch: 3, unit: 4, template: 5, kernel: 6, part: 7 };
  let at = page.root;
  for (;;) {
    const next = at.children.find((child) => child.first <= row && row < child.end);
    if (!next || depth[next.kind] > kind) return at;
    at = next;
  }
}

/** The address of a node, for the fragment of the page's URL: `#/0/3`. */
function address(at) {
  const steps = [];
  for (; at.parent; at = at.parent) steps.unshift(at.parent.kind === "others" ? "" : at.parent.children.indexOf(at));
  return `#/${steps.join("/")}`;
}

/** The node of an address. Stops before missing nodes and nodes without children, because a URL may be wrong. */
function nodeOfAddress(root, hash) {
  let at = root;
  for (const step of hash.slice(2).split("/")) {
    const next = /^[0-9]+$/.test(step) ? at.children[Number(step)] : undefined;
    if (!next || next.children.length === 0) break;
    at = next;
  }
  return at;
}

function drawCrumbs(page) {
  const list = document.getElementById("crumbs");
  const steps = [];
  for (let at = page.at; at; at = at.parent) steps.unshift(at);
  list.replaceChildren(
    ...steps.map((at) => {
      const item = element("li");
      const button = element("button", "", at.kind === "root" ? at.name : label(at));
      button.type = "button";
      button.title = at.name;
      button.append(element("span", "size", bytes(at[page.measure])));
      if (at === page.at) button.setAttribute("aria-current", "location");
      button.addEventListener("click", () => page.zoom(at, { exact: true }));
      item.append(button);
      return item;
    }),
  );
}

function drawLegend(page) {
  const swatch = (name, hue, much, className) => {
    const item = element("li");
    const box = element("span", `swatch ${className ?? ""}`);
    box.style.setProperty("--h", hue);
    box.style.setProperty("--k", much);
    item.append(box, name);
    return item;
  };
  const items = [];
  if (page.colour === "change") {
    items.push(swatch("▲ grew", 60, 1), swatch("▼ shrank", 255, 1), swatch("✚ new", 60, 1, "came"), swatch("✖ gone", 255, 1, "went"));
    items.push(swatch("unchanged", 0, 0));
  } else if (page.colour === "part") {
    const there = new Set();
    for (const [first, end] of ranges(page.at)) for (let i = first; i < end; i++) there.add(page.rows.text[page.rows.part[i]]);
    const named = Object.entries(PARTS).filter(([name]) => there.has(name));
    items.push(...named.map(([name, hue]) => swatch(name, hue, 1)));
    if (named.length < there.size) items.push(swatch("other", 0, 0));
  }
  document.getElementById("legend").replaceChildren(...items);
}

function drawTotals(page) {
  const { root, rows } = page;
  const words = rows.several ? [`${root.children.length} files`] : [];
  words.push(`${bytes(root.file)} in file`, `${bytes(root.inflated)} uncompressed`);
  if (page.compared) words.push(`${MARKS[fate(root, page.measure)]}${changeText(root, page.measure)}`);
  const archs = new Set();
  const kernels = new Set();
  for (let i = 0; i < rows.count; i++) {
    if (rows.file[i] === 0 && rows.inflated[i] === 0) continue;
    archs.add(rows.text[rows.arch[i]]);
    if (rows.text[rows.kernel[i]]) kernels.add(rows.kernel[i]);
  }
  archs.delete("");
  archs.delete("host");
  const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
  words.push(count(kernels.size, "kernel"), count(archs.size, "architecture"));
  document.getElementById("totals").textContent = words.join(" · ");
}

/** The state of the page, and the functions that change it. */
class Page {
  constructor(rows, title) {
    this.rows = rows;
    this.compared = rows.compared;
    this.root = tree(rows, title);
    this.at = this.root;
    this.measure = "file";
    this.area = "size";
    this.colour = this.compared ? "change" : "group";
    this.level = "kernel";
    this.query = "";
    this.found = null;
    this.sort = { key: this.compared ? "change" : "file", down: true };
    this.shown = STEP;
    this.tiles = [];
    this.focused = null;
  }

  weigh() {
    weigh(this.root, this.measure, this.area);
  }

  draw() {
    drawTotals(this);
    drawCrumbs(this);
    drawMap(this);
    drawLegend(this);
    drawTable(this);
  }

  nodeOf(row) {
    return nodeOfRow(this, row);
  }

  say(text) {
    document.getElementById("said").textContent = text;
  }

  /**
   * Shows a node, or the next node below with several children, unless `exact` is set. `from` is the tile that was opened; `keys` sets
   * the focus for the keyboard; `scroll` scrolls to the treemap; `quiet` keeps the address.
   */
  zoom(to, { from, keys, scroll, quiet, exact }) {
    // A node without children is shown in its parent.
    let at = exact ? to : branching(to);
    while (at.children.length === 0 && at.parent) at = at.parent;
    const before = this.at;
    this.at = at;
    this.shown = STEP;
    if (!quiet) history.pushState(null, "", address(at));
    drawCrumbs(this);
    drawMap(this, from);
    drawLegend(this);
    drawTable(this);
    this.say(`${spoken(at, this)}`);
    const map = document.getElementById("map");
    if (scroll) map.scrollIntoView({ block: "nearest" });
    if (!keys && !scroll) return;
    // Focus the tile that was left, or the requested one if it has no children.
    const holds = (tile, wanted) => tile.node.first <= wanted.first && wanted.end <= tile.node.end && tile.node.kind !== "others";
    const within = (tile) => holds(tile, to.children.length === 0 ? to : before);
    const index = this.tiles.findIndex((tile) => tile.depth === 0 && within(tile));
    map.querySelector(`[data-index="${Math.max(0, index)}"]`)?.focus();
  }

  up() {
    let above = this.at.parent;
    while (above?.parent && above.children.length === 1) above = above.parent;
    if (above) this.zoom(above, { keys: true, exact: true });
  }

  search(query) {
    this.query = query.trim();
    this.shown = STEP;
    this.found = find(this);
    countHits(this);
    drawMap(this);
    drawTable(this);
  }
}

function choose(name, then) {
  document.getElementById(name).addEventListener("change", (event) => then(event.target.value));
}

function listen(page) {
  listenToMap(page);
  listenToTable(page);
  choose("measure", (value) => {
    page.measure = value;
    if (["file", "inflated"].includes(page.sort.key)) page.sort = { key: value, down: true };
    page.weigh();
    page.draw();
  });
  choose("area", (value) => {
    page.area = value;
    page.weigh();
    drawMap(page);
  });
  choose("colour", (value) => {
    page.colour = value;
    drawMap(page);
    drawLegend(page);
  });
  const search = document.getElementById("search");
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => page.search(search.value), page.rows.count > 20000 ? 150 : 30);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input[type=search], select");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && !document.getElementById("tip").hidden && !event.target.closest("#map")) {
      hideTip();
    } else if ((event.key === "Escape" || event.key === "Backspace") && !typing) {
      event.preventDefault();
      page.up();
    }
  });
  addEventListener("popstate", () => {
    const hash = location.hash;
    if (hash === "" || hash.startsWith("#/")) page.zoom(nodeOfAddress(page.root, hash), { quiet: true, exact: true });
  });
  const map = document.getElementById("map");
  let frame = 0;
  let drawn = [map.clientWidth, map.clientHeight].join();
  new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const size = [map.clientWidth, map.clientHeight].join();
      if (size !== drawn) drawMap(page);
      drawn = size;
    });
  }).observe(map);
}

/** The colour scheme: that of the system by default. The user's choice is stored if the browser has storage for files. */
function listenToTheme() {
  const set = (value) => (document.documentElement.dataset.theme = value);
  let kept = null;
  try {
    kept = localStorage.getItem("offld-theme");
  } catch {
    // Without storage, the choice lasts until the page is closed.
  }
  const input = document.querySelector(`#theme input[value="${kept === "light" || kept === "dark" ? kept : "auto"}"]`);
  input.checked = true;
  set(input.value);
  choose("theme", (value) => {
    set(value);
    try {
      localStorage.setItem("offld-theme", value);
    } catch {
      // See above.
    }
  });
}

async function start() {
  listenToTheme();
  const holder = document.getElementById("data");
  const data = await unpack(holder.textContent);
  holder.remove();
  const page = new Page(columns(data), document.getElementById("title").textContent);
  document.getElementById("app").hidden = false;
  document.getElementById("status").hidden = true;
  document.querySelector('#rows option[value="input"]').hidden = !page.rows.several;
  document.querySelector('#rows option[value="member"]').hidden = !page.rows.packed;
  for (const id of ["area", "colour-change"]) document.getElementById(id).hidden = !page.compared;
  document.querySelector(`#colour input[value="${page.colour}"]`).checked = true;
  page.weigh();
  if (location.hash.startsWith("#/")) page.at = nodeOfAddress(page.root, location.hash);
  page.draw();
  listen(page);
  document.documentElement.dataset.ready = Math.round(performance.now());
}

start().catch((error) => {
  const status = document.getElementById("status");
  status.hidden = false;
  status.textContent = `Cannot show this page: ${error}. A browser from 2024 or later is required.`;
  console.error(error);
});
