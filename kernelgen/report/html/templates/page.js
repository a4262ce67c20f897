"use strict";
// Sorting and filtering the table, and opening what a link leads to. The page reads without it.
(() => {
  const table = document.querySelector("table.all");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];

  // Rows without a value come last, whichever way the others go.
  const compare = (kind, a, b) => {
    if (kind === "number") return Number(a) - Number(b);
    return a.localeCompare(b, "en", { numeric: true });
  };
  const sort = (column, descending) => {
    const kind = headings[column].dataset.sort;
    const value = (row) => row.cells[column].dataset.value;
    const filled = rows.filter((row) => value(row) !== "");
    const empty = rows.filter((row) => value(row) === "");
    filled.sort((a, b) => (descending ? -1 : 1) * compare(kind, value(a), value(b)));
    body.append(...filled, ...empty);
    headings.forEach((heading, index) => {
      if (index !== column) heading.removeAttribute("aria-sort");
      else heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    });
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", () => {
      sort(column, heading.getAttribute("aria-sort") === "ascending");
    });
    heading.replaceChildren(button);
  });

  const filter = document.querySelector(".filter");
  const input = filter.querySelector("input");
  const told = filter.querySelector("output");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      if (!row.hidden) shown += 1;
    }
    told.textContent = wanted ? `${shown} of ${rows.length}` : "";
  });
  filter.hidden = false;

  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    const fold = target && target.closest("details");
    if (fold && !fold.open) {
      fold.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // On paper nothing can be opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.solution:not([open]), details.chart:not([open])")];
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
    opened = [];
  });
})();
