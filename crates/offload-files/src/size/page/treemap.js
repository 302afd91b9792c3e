"use strict";

// The treemap: its tiles, their appearance, and navigation between them.

const HUES = [255, 165, 70, 310, 215, 30, 120, 345, 190, 285];
const PARTS = {
  code: 255, mercury: 235, ptx: 280, bitcode: 290, spirv: 270, constants: 165, data: 130, attributes: 190, symbols: 310, debug: 75,
  relocations: 345, notes: 210, registration: 30, image: 100, files: 50,
};
const MOST_TILES = 1500;
const FEWEST_TILES = 300;
const HEADER = 20;

/** Sets the weights, and thus the areas, of a node and everything below. Removed items have their old size. */
function weigh(at, measure, area) {
  let sum = 0;
  if (at.children.length === 0) {
    const now = at[measure];
    const old = oldOf(at, measure);
    sum = area === "change" ? Math.abs(now - old) : now || old;
  }
  for (let i = 0; i < at.children.length; i++) sum += weigh(at.children[i], measure, area);
  at.weight = sum;
  return sum;
}

/** One tile for all nodes that are too small to be visible. */
function others(parent, rest) {
  const first = rest[0];
  const made = { ...node("others", `${rest.length.toLocaleString("en")} others`, parent, first.first), children: rest, weight: 0 };
  for (const child of rest) {
    for (const key of ["file", "inflated", "oldFile", "oldInflated", "weight", "kernels", "hits"]) made[key] += child[key];
    made.was ||= child.was;
  }
  return made;
}

/**
 * The children of a node, the largest first. Children below `least` (a fraction of the node's weight) are combined into one. At least
 * `some` are shown separately, so that every node can be reached.
 */
function visible(at, least, some) {
  const sorted = at.children.filter((child) => child.weight > 0).sort((a, b) => b.weight - a.weight);
  const total = sorted.reduce((sum, child) => sum + child.weight, 0);
  const small = sorted.findIndex((child) => child.weight < least * total);
  const shown = Math.max(some, small < 0 ? sorted.length : small);
  // A single small child is not combined.
  return shown + 1 >= sorted.length ? sorted : [...sorted.slice(0, shown), others(at, sorted.slice(shown))];
}

/** Whether a parent with these items is informative: the combined tile must not cover most of it. */
function worthShowing(items) {
  const last = items[items.length - 1];
  return items.length > 1 && !(last.kind === "others" && last.weight > items.reduce((sum, item) => sum + item.weight, 0) * 0.6);
}

/** The first node below with several children, or without any. The nodes in between have no bytes of their own. */
function branching(at) {
  while (at.children.length === 1 && at.children[0].children.length > 0) at = at.children[0];
  return at;
}

/** Squarified rows of items in a rectangle (Bruls, Huizing and van Wijk, 2000). */
function squarify(items, x, y, width, height, place) {
  const scale = (width * height) / items.reduce((sum, item) => sum + item.weight, 0);
  let start = 0;
  while (start < items.length && width > 0 && height > 0) {
    const side = Math.min(width, height);
    let [end, area, worst, least, most] = [start, 0, Infinity, Infinity, 0];
    while (end < items.length) {
      const next = items[end].weight * scale;
      const [low, high, sum] = [Math.min(least, next), Math.max(most, next), area + next];
      const ratio = Math.max((side * side * high) / (sum * sum), (sum * sum) / (side * side * low));
      if (ratio > worst) break;
      [worst, least, most, area] = [ratio, low, high, sum];
      end++;
    }
    const thick = area / side;
    let along = 0;
    for (; start < end; start++) {
      const long = (items[start].weight * scale) / thick;
      if (width >= height) place(items[start], x, y + along, thick, long);
      else place(items[start], x + along, y, long, thick);
      along += long;
    }
    if (width >= height) [x, width] = [x + thick, width - thick];
    else [y, height] = [y + thick, height - thick];
  }
}

/** All tiles of a view, parents before their children. Sizes are in pixels. */
function tilesOf(at, width, height) {
  const tiles = [];
  const least = Math.max(120, (width * height) / MOST_TILES);
  const fill = (items, top, x, y, w, h, depth) => {
    squarify(items, x, y, w, h, (item, left, up, wide, high) => {
      const tile = { node: item, inner: branching(item), x: left, y: up, w: wide, h: high, depth, top: depth === 0 ? tiles.length : top, group: false };
      tiles.push(tile);
      const [across, down] = [wide - 6, high - HEADER - 3];
      // Deeper tiles must be larger, because small ones are easier to read after a click.
      const room = item.children.length > 0 && depth < 3 && across > 60 + 25 * depth && down > 30 + 15 * depth;
      if (!room || tiles.length > MOST_TILES) return;
      const inside = visible(tile.inner, ((1 + depth) * least) / (across * down), 1);
      tile.group = worthShowing(inside);
      if (tile.group) fill(inside, tile.top, left + 3, up + HEADER, across, down, depth + 1);
    });
  };
  if (width > 0 && height > 0) fill(visible(at, least / (width * height), FEWEST_TILES), 0, 0, 0, width, height, 0);
  let order = -1;
  for (const tile of tiles) tile.order = tile.depth === 0 ? ++order : order;
  return tiles;
}

/** The label of a node: the arguments of a template instance, and the names of units, files and members without directories. */
function label(at) {
  if (at.kind === "kernel" && at.parent?.kind === "template") {
    const from = at.name.indexOf(at.parent.name);
    const rest = from < 0 ? "" : at.name.slice(from + at.parent.name.length);
    if (rest) return rest;
  }
  if (["unit", "member", "input"].includes(at.kind)) return at.name.slice(at.name.lastIndexOf("/") + 1) || at.name;
  if (at.kind === "kernel" || at.kind === "template") return at.name.replace(/^(?:void|auto) /, "");
  return at.name;
}

/** A name without namespaces, for small tiles, because names differ mostly at their ends. */
function unqualified(text) {
  const end = text.search(/[<(]/);
  const start = text.slice(0, end < 0 ? text.length : end).lastIndexOf("::");
  return start < 0 ? text : text.slice(start + 2);
}

/** The label of a tile that is `room` pixels wide. */
function tileLabel(tile, room) {
  const fits = (text) => text.length * 6.8 <= room;
  const steps = [tile.node];
  while (tile.group && steps[steps.length - 1] !== tile.inner) steps.push(steps[steps.length - 1].children[0]);
  const all = steps.map((step) => ({ text: label(step), qualified: step.kind === "kernel" || step.kind === "template" }));
  const whole = all.map((each) => each.text).join(" › ");
  if (fits(whole)) return whole;
  const short = all.map((each) => (each.qualified ? unqualified(each.text) : each.text));
  return fits(short.join(" › ")) || short.length === 1 ? short.join(" › ") : short[0];
}

/** The part with most of the bytes of a node. */
function mainPart(at, rows, measure) {
  if (at.part) return at.part;
  const sums = new Map();
  for (const [first, end] of ranges(at)) {
    for (let i = first; i < end; i++) {
      const size = rows[measure][i] || (measure === "file" ? rows.oldFile[i] : rows.oldInflated[i]);
      sums.set(rows.part[i], (sums.get(rows.part[i]) ?? 0) + size);
    }
  }
  let [best, most] = ["", -1];
  for (const [part, size] of sums) if (size > most) [best, most] = [rows.text[part], size];
  return best;
}

/** The ranges of rows in a node. */
function ranges(at) {
  return at.kind === "others" ? at.children.map((child) => [child.first, child.end]) : [[at.first, at.end]];
}

/** The hue and the strength of the colour, from 0 to 1. */
function paint(tile, page) {
  const { node: at, order } = tile;
  if (page.colour === "change") {
    const [now, old] = [at[page.measure], oldOf(at, page.measure)];
    const much = Math.sqrt(Math.abs(now - old) / Math.max(now, old, 1));
    return [now >= old ? 60 : 255, much === 0 ? 0 : 0.15 + 1.2 * much];
  }
  if (page.colour === "part") {
    if (tile.group) return [0, 0];
    const hue = PARTS[mainPart(at, page.rows, page.measure)];
    return hue === undefined ? [0, 0] : [hue, 1];
  }
  const top = page.tiles[tile.top].node;
  if (top.kind === "others" || top.name === CONTAINERS) return [0, 0];
  return [HUES[order % HUES.length], order < HUES.length ? 1 : 0.6];
}

function spoken(at, page) {
  const whole = page.root[page.measure];
  const words = [at.name, bytes(at[page.measure]), `${percent(at[page.measure], whole)} of all`];
  if (page.compared) words.push(changeText(at, page.measure));
  if (at.children.length > 0) words.push(`${at.children.length} inside`);
  return words.join(", ");
}

/** The text below a label, in a tile that is `room` pixels wide: the size or its change. */
function sizeText(at, page, room) {
  const fits = (text) => text.length * 6.8 <= room;
  const size = bytes(at[page.measure]);
  if (page.colour !== "change") return fits(size) ? size : "";
  const what = fate(at, page.measure);
  const change = what === "same" ? "unchanged" : MARKS[what] + signed(changeOf(at, page.measure));
  return fits(change) ? change : MARKS[what];
}

function drawTile(tile, index, page, width, height) {
  const { node: at, x, y, w, h, depth, group } = tile;
  const made = element(depth === 0 ? "button" : "div", `tile${group ? " group" : ""}${at.children.length > 0 ? " opens" : ""}`);
  const { style } = made;
  style.left = `${(100 * x) / width}%`;
  style.top = `${(100 * y) / height}%`;
  style.width = `${(100 * w) / width}%`;
  style.height = `${(100 * h) / height}%`;
  const [hue, much] = paint(tile, page);
  style.setProperty("--h", hue);
  style.setProperty("--k", much);
  style.setProperty("--d", depth);
  made.dataset.index = index;
  if (page.compared) made.classList.add(fate(at, page.measure));
  if (page.found && at.hits === 0) made.classList.add("dim");
  const withSize = group && w > 150;
  const name = tileLabel(tile, w - (withSize ? 80 : 12));
  // The start of a name is informative if it has at least five letters.
  if (h > 15 && (w > 52 || name.length * 6.8 < w - 10)) {
    const text = element("span", "text");
    text.append(element("span", "label", name));
    // In a group, the size follows the name if there is room. Otherwise it is below the name if the tile is high enough.
    if (group ? withSize : h > 34) text.append(element("span", "size", sizeText(at, page, w - 12)));
    made.append(text);
  }
  if (depth === 0) {
    made.type = "button";
    made.tabIndex = -1;
    made.setAttribute("aria-label", spoken(at, page));
  } else {
    made.setAttribute("aria-hidden", "true");
  }
  return made;
}

/** Draws the treemap of `page.at`. `from` is the opened tile, for the animation. */
function drawMap(page, from) {
  const map = document.getElementById("map");
  const { clientWidth: width, clientHeight: height } = map;
  page.tiles = tilesOf(page.at, width, height);
  const layer = element("div", "layer");
  page.tiles.forEach((tile, index) => layer.append(drawTile(tile, index, page, width, height)));
  if (page.tiles.length === 0) layer.append(element("p", "empty", page.area === "change" ? "Nothing has changed here." : "Nothing here."));
  // The focus stays on its tile, if that tile still exists.
  const focused = document.activeElement?.closest?.("#map .tile") ? page.focused : null;
  map.replaceChildren(layer);
  map.querySelector("button.tile")?.setAttribute("tabindex", "0");
  const again = focused ? page.tiles.findIndex((tile) => tile.depth === 0 && tile.node === focused) : -1;
  if (again >= 0) map.querySelector(`[data-index="${again}"]`).focus({ preventScroll: true });
  if (from && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    const start = `translate(${from.x}px, ${from.y}px) scale(${from.w / width}, ${from.h / height})`;
    layer.animate([{ transform: start, opacity: 0.2 }, { transform: "none", opacity: 1 }], { duration: 200, easing: "ease-out" });
  }
}

/** The tile in the direction of an arrow key: the nearest one whose centre is in that direction. */
function neighbour(tiles, from, key) {
  const centre = (tile) => [tile.x + tile.w / 2, tile.y + tile.h / 2];
  const [x, y] = centre(from);
  let [best, least] = [null, Infinity];
  for (const tile of tiles) {
    if (tile.depth > 0 || tile === from) continue;
    const [dx, dy] = [centre(tile)[0] - x, centre(tile)[1] - y];
    const [along, across] = { ArrowRight: [dx, dy], ArrowLeft: [-dx, dy], ArrowDown: [dy, dx], ArrowUp: [-dy, dx] }[key];
    const distance = along + 2 * Math.abs(across);
    if (along > 0.5 && distance < least) [best, least] = [tile, distance];
  }
  return best;
}

function tipText(at, page) {
  const tip = [];
  const above = [];
  for (let up = at.parent; up && up.kind !== "root"; up = up.parent) above.unshift(up.name);
  if (above.length > 0) tip.push(element("p", "tip-path", above.join(" › ")));
  tip.push(element("p", "tip-name", at.name));
  const list = element("dl");
  const say = (name, value) => list.append(element("dt", "", name), element("dd", "", value));
  const exact = (size) => `${bytes(size)} (${size.toLocaleString("en")} bytes)`;
  say("In file", `${exact(at.file)}, ${percent(at.file, page.root.file)}`);
  say("Uncompressed", `${exact(at.inflated)}, ${percent(at.inflated, page.root.inflated)}`);
  if (at.parent && at.parent !== page.root) say(`Of the ${KINDS[at.parent.kind]}`, percent(at[page.measure], at.parent[page.measure]));
  if (page.compared) {
    say("Before", at.was ? exact(oldOf(at, page.measure)) : "absent");
    say("Change", changeText(at, page.measure));
  }
  if (at.kernels > 1) say("Kernels", at.kernels.toLocaleString("en"));
  if (at.part && at.part !== at.name) say("Part", at.part);
  tip.push(list);
  return tip;
}

const KINDS = { input: "file", member: "member", arch: "architecture", unit: "unit", template: "template", kernel: "kernel", others: "others" };

function showTip(at, page, x, y) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...tipText(at, page));
  tip.hidden = false;
  const { offsetWidth: wide, offsetHeight: high } = tip;
  const left = x + 16 + wide > innerWidth ? x - 16 - wide : x + 16;
  const top = y + 16 + high > innerHeight ? y - 16 - high : y + 16;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - wide - 4))}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

/** Adds the handlers of mouse and keyboard to the treemap. */
function listenToMap(page) {
  const map = document.getElementById("map");
  const tileAt = (target) => page.tiles[target.closest?.(".tile")?.dataset.index];
  map.addEventListener("pointermove", (event) => {
    const tile = event.pointerType === "touch" ? undefined : tileAt(event.target);
    if (tile) showTip(tile.node, page, event.clientX, event.clientY);
    else hideTip();
  });
  map.addEventListener("pointerleave", hideTip);
  map.addEventListener("click", (event) => {
    const tile = tileAt(event.target);
    if (!tile) return;
    hideTip();
    // A tile without children leads to its parent, unless the parent is already shown.
    const opens = tile.node.children.length > 0;
    if (opens || tile.depth > 0) page.zoom(opens ? tile.node : tile.node.parent, { from: tile, keys: event.detail === 0 });
    else {
      page.say(spoken(tile.node, page));
      showTip(tile.node, page, event.clientX, event.clientY);
    }
  });
  map.addEventListener("focusin", (event) => {
    const tile = tileAt(event.target);
    if (!tile) return;
    map.querySelectorAll('.tile[tabindex="0"]').forEach((each) => (each.tabIndex = -1));
    event.target.tabIndex = 0;
    page.focused = tile.node;
    if (!event.target.matches(":focus-visible")) return;
    const box = event.target.getBoundingClientRect();
    showTip(tile.node, page, box.left + Math.min(box.width / 2, 120), box.top + Math.min(box.height, 60));
  });
  map.addEventListener("focusout", hideTip);
  map.addEventListener("keydown", (event) => {
    const tile = tileAt(event.target);
    if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
    const tops = page.tiles.filter((each) => each.depth === 0);
    let next = null;
    if (event.key.startsWith("Arrow")) next = neighbour(tops, tile, event.key);
    else if (event.key === "Home") next = tops[0];
    else if (event.key === "End") next = tops[tops.length - 1];
    else return;
    event.preventDefault();
    if (next) map.querySelector(`[data-index="${page.tiles.indexOf(next)}"]`).focus();
  });
}
