"use strict";
// Search and sorting. Without this script, the page shows the whole table.
const body = document.querySelector("#table tbody");
const rows = [...body.rows];
const search = document.getElementById("search");
const count = document.getElementById("count");
document.getElementById("bar").hidden = false;

const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    row.hidden = !words.every((word) => texts.get(row).includes(word));
    if (!row.hidden) shown += 1;
  }
  count.textContent = `${shown} of ${rows.length} kernels`;
}
search.addEventListener("input", show);
show();

const compare = new Intl.Collator("en", { numeric: true }).compare;
for (const [column, heading] of [...document.querySelectorAll("#table thead th")].entries()) {
  const button = document.createElement("button");
  button.textContent = heading.textContent;
  heading.replaceChildren(button);
  button.addEventListener("click", () => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const text = (row) => row.cells[column].textContent;
    rows.sort((one, other) => compare(text(one), text(other)) * (down ? -1 : 1));
    body.append(...rows);
  });
}
