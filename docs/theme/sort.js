// A long text in a cell gets space. A click on the head of a table with numbers sorts its rows, by the
// first number of a cell or else by its words. A table whose rows belong to the row above them stays
// as it is.
const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
const number = word => parseFloat(word.replace(/[,\u00a0 ](?=\d{3})/g, "").replace("−", "-"));
const numeric = (rows, column) => {
  const words = rows.map(row => text(row, column)).filter(word => word && word !== "–");
  return words.length > 0 && words.every(word => !isNaN(number(word)));
};

function sort(table, head, column) {
  const rows = [...table.tBodies[0].rows], byNumber = numeric(rows, column);
  const next = { "": byNumber ? "down" : "up", up: "down", down: "up" }[head.dataset.sort];
  const known = row => (byNumber ? !isNaN(number(text(row, column))) : text(row, column) !== "");
  const order = (a, b) =>
    byNumber
      ? number(text(a, column)) - number(text(b, column))
      : text(a, column).localeCompare(text(b, column));
  const sign = next === "down" ? -1 : 1;
  rows.sort((a, b) => known(b) - known(a) || sign * order(a, b));
  table.querySelectorAll("th[data-sort]").forEach(other => { other.dataset.sort = ""; });
  head.dataset.sort = next;
  table.tBodies[0].append(...rows);
}

document.querySelectorAll(".md-typeset table:not([class])").forEach(table => {
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  for (const cell of rows.flatMap(row => [...row.cells]))
    if (cell.textContent.trim().length > 30) cell.classList.add("long");
  const heads = [...table.querySelectorAll("thead th")];
  if (rows.length < 3 || rows.some(row => !text(row, 0))) return;
  if (!heads.some((_, column) => numeric(rows, column))) return;
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    head.dataset.sort = "";
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(table, head, column));
    head.addEventListener("keydown", event => {
      if (event.key === "Enter") sort(table, head, column);
    });
  });
});

document.querySelectorAll(".md-typeset :not(pre) > code").forEach(code => {
  code.classList.toggle("short", code.textContent.length <= 24);
});

// A table that is wider than the text keeps its first column, and shows while there is more of it.
function edges(wrap) {
  wrap.classList.toggle("wide", wrap.scrollWidth > wrap.clientWidth + 1);
  wrap.classList.toggle("more", wrap.scrollLeft + wrap.clientWidth < wrap.scrollWidth - 1);
}
addEventListener("load", () => {
  document.querySelectorAll(".md-typeset__scrollwrap").forEach(wrap => {
    wrap.addEventListener("scroll", () => edges(wrap), { passive: true });
    const sizes = new ResizeObserver(() => edges(wrap));
    [wrap, wrap.querySelector("table")].forEach(box => sizes.observe(box));
  });
});
