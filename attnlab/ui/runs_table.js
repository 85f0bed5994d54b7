// The list of runs as a plain HTML table: boxes to choose by, heads to sort by, a pager below. The page decides what stands in
// it; what the visitor wants goes there as one state, [number, chosen ids, column, descending, page], whose number only
// grows. A table that answers an older number than the last one told does not undo what was ticked meanwhile.

const CHECKBOX = "input[type=checkbox][data-run]";

function make(tag, into, more = {}, attributes = {}) {
  const element = Object.assign(document.createElement(tag), more);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  into.appendChild(element);
  return element;
}

function tell(view, wanted) {
  view.wanted = { ...view.wanted, ...wanted };
  view.number = Math.max(Date.now(), view.number + 1);
  const { chosen, sort, down, page } = view.wanted;
  view.say([view.number, [...chosen], sort, down, page]);
  mark(view);
}

// What is chosen, as the boxes show it. One box is a tab stop and the arrows move on from it, so that nobody tabs through fifty.
function mark(view) {
  const { chosen } = view.wanted, boxes = [...view.root.querySelectorAll(CHECKBOX)];
  for (const box of boxes) {
    box.checked = chosen.has(box.dataset.run);
    box.closest("tr").toggleAttribute("data-chosen", box.checked);
  }
  const ticked = boxes.filter((box) => box.checked).length, all = view.root.querySelector("[data-all]");
  all.checked = boxes.length > 0 && ticked === boxes.length;
  all.indeterminate = ticked > 0 && ticked < boxes.length;
  all.disabled = boxes.length === 0;
  view.root.querySelector("[data-none]").disabled = chosen.size === 0;
  view.root.querySelector("[data-count]").textContent = `${chosen.size} chosen`;
  if (!boxes.some((box) => box.tabIndex === 0) && boxes.length) boxes[0].tabIndex = 0;
}

function choose(view, boxes, on) {
  const chosen = new Set(view.wanted.chosen);
  for (const box of boxes) on ? chosen.add(box.dataset.run) : chosen.delete(box.dataset.run);
  tell(view, { chosen });
}

function focus(view, box) {
  for (const other of view.root.querySelectorAll(CHECKBOX)) other.tabIndex = -1;
  box.tabIndex = 0;
  box.focus();
}

function listen(view) {
  const boxes = () => [...view.root.querySelectorAll(CHECKBOX)];
  view.root.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr"), box = row?.querySelector(CHECKBOX);
    const head = event.target.closest("[data-sort]"), turn = event.target.closest("[data-turn]");
    if (event.target.matches("[data-all]")) choose(view, boxes(), event.target.checked);
    else if (event.target.closest("[data-none]")) tell(view, { chosen: new Set() });
    else if (turn) tell(view, { page: view.wanted.page + Number(turn.dataset.turn) });
    else if (head) {
      const again = view.wanted.sort === head.dataset.sort;
      tell(view, { sort: head.dataset.sort, down: again ? !view.wanted.down : head.dataset.sort === "date", page: 1 });
    } else if (box && String(window.getSelection()) === "") {  // who copies a cell's text does not choose its row
      const all = boxes(), from = event.shiftKey ? all.indexOf(view.last) : -1, to = all.indexOf(box);
      const on = event.target === box ? box.checked : !box.checked;
      choose(view, from < 0 ? [box] : all.slice(Math.min(from, to), Math.max(from, to) + 1), on);
      view.last = box;
      focus(view, box);
    }
  });
  view.root.addEventListener("mousedown", (event) => {
    if (event.shiftKey && event.target.closest("tbody tr")) event.preventDefault();  // a range of rows, not of text
  });
  view.root.addEventListener("keydown", (event) => {
    const all = boxes(), at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    if (all[to]) focus(view, all[to]);
  });
}

function build(view, { alt, height, columns }) {
  view.root.style.setProperty("--attnlab-rows-height", `${height}px`);
  const scroll = make("div", view.root, { className: "rows", tabIndex: 0 }, { role: "region", "aria-label": alt });
  const table = make("table", scroll);
  const head = make("tr", make("thead", table));
  make("input", make("th", head, { className: "box" }), { type: "checkbox" }, { "data-all": "", "aria-label": "Choose all on this page" });
  for (const [name, label, width] of columns) {
    const cell = make("th", head, {}, { scope: "col", "data-column": name });
    cell.style.width = `${width}px`;
    make("button", cell, { type: "button", textContent: label }, { "data-sort": name });
  }
  make("tbody", table);
  const foot = make("div", view.root, { className: "foot" });
  make("span", foot, {}, { "data-count": "", role: "status" });
  make("button", foot, { type: "button", textContent: "Choose none" }, { "data-none": "" });
  make("span", foot, {}, { "data-place": "" });
  make("button", foot, { type: "button", textContent: "‹ Newer" }, { "data-turn": "-1" });
  make("button", foot, { type: "button", textContent: "Older ›" }, { "data-turn": "1" });
}

function blank(id, count) {
  const row = document.createElement("tr");
  make("input", make("td", row, { className: "box" }), { type: "checkbox", tabIndex: -1 }, { "data-run": id });
  for (let i = 0; i < count; i += 1) make("td", row);
  return row;
}

// A row that stays is the same element: a key that is held down on its box, or a text that is being selected, is not lost.
function fill(view, { rows, sort, down, page, pages, place }) {
  const body = view.root.querySelector("tbody"), focused = document.activeElement?.dataset?.run;
  const there = new Map([...body.rows].map((row) => [row.querySelector(CHECKBOX).dataset.run, row]));
  rows.forEach(([id, title, ...cells], at) => {
    const row = there.get(id) ?? blank(id, cells.length);
    row.querySelector(CHECKBOX).setAttribute("aria-label", `Choose ${title}`);
    cells.forEach((text, i) => {
      const cell = row.cells[i + 1], says = text || "–";
      if (cell.textContent !== says) cell.textContent = says;
      cell.title = text;
    });
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  for (const cell of view.root.querySelectorAll("[data-column]")) {
    cell.setAttribute("aria-sort", cell.dataset.column !== sort ? "none" : down ? "descending" : "ascending");
  }
  const [before, after] = view.root.querySelectorAll("[data-turn]"), byDate = sort === "date" && down;
  before.textContent = byDate ? "‹ Newer" : "‹ Before";
  after.textContent = byDate ? "Older ›" : "After ›";
  before.disabled = page <= 1;
  after.disabled = page >= pages;
  view.root.querySelector("[data-place]").textContent = place;
  const again = [...body.querySelectorAll(CHECKBOX)].find((box) => box.dataset.run === focused);
  if (again) focus(view, again);
}

export default function ({ data, parentElement, setStateValue }) {
  const [table] = data;
  let view = parentElement._attnlabRuns;
  if (!view) {
    view = parentElement._attnlabRuns = { number: 0, root: make("div", parentElement, { className: "attnlab-runs" }) };
    build(view, table);
    listen(view);
  }
  view.say = (said) => setStateValue("said", said);
  if (table.answers < view.number) return;  // the table that answers the last tick is on its way
  const shown = JSON.stringify([table.rows, table.sort, table.down, table.page, table.pages, table.place]);
  view.number = table.answers;
  view.wanted = { chosen: new Set(table.chosen), sort: table.sort, down: table.down, page: table.page };
  if (shown !== view.shown) {  // a table that is as it was keeps its focus, its place and a text that is being selected
    if (table.page !== view.page) view.root.querySelector(".rows").scrollTop = 0;
    fill(view, table);
    Object.assign(view, { shown, page: table.page });
  }
  mark(view);
}
