// The tasks as a table, and the last hour of one of them.

import { confirmed, verb } from "./actions.js";
import { ask, clock, compare, copies, draw, keepFocus, make, number, put, span, table, wanted } from "./dom.js";

export const name = "tasks", title = "Tasks";

const COLUMNS = [
  ["Task", "task"], ["State", "state"], ["Lag", "lag"], ["Oldest", "waiting_s"], ["Rate/s", "rate"],
  ["Errors", "errors"], ["Retries", "retries"], ["Commit", "committed_s"], ["Position", "position"], ["Owner", "owner"],
];

const rows = make("tbody", undefined, { id: "rows" });
const which = make("select", undefined, { id: "which", class: "verb" });
const details = make("div", undefined, { id: "details", role: "group", "aria-label": "Details of a task" });
let state = null, sorted = ["", 1], chosen = "", said = "";

export function begin() {
  const titles = COLUMNS.map(([title, column]) => {
    const button = make("button", title, { type: "button" });
    button.addEventListener("click", () => { sorted = [column, sorted[0] === column ? -sorted[1] : 1]; if (state) showTasks(); });
    return button;
  });
  return [put(make("p"), make("label", "Processor ", { for: "which", class: "verb" }), which, " ", ...VERBS.map(verbOf)), table("Table of tasks", titles, rows), details];
}

const VERBS = [
  ["Pause", "pause", "Its tasks finish their batch, commit it, and keep their partitions. The pause lasts until it is resumed, also across restarts."],
  ["Resume", "resume", "Workers continue within a second."],
];

function verbOf([text, name, means]) {
  return verb(`${text} \u2026`, `${text} the chosen processor`, async () => {
    const processor = which.value;
    const title = `${text} ${processor || "all processors"}?`;
    const command = await commandOf(name);
    const same = command ? `\nThe same as: ${command} ${processor}`.trimEnd() : "";
    confirmed({ title, name, given: processor ? { processor } : {}, text: means + same, button: text });
  });
}

// What does the same in a terminal; empty: the program does not answer.
async function commandOf(name) {
  try {
    return (await ask("api/commands"))[name];
  } catch (error) {
    return "";
  }
}

function showProcessors(picture) {
  const names = picture.nodes.filter((node) => node.kind === "processor" || node.kind === "feed").map((node) => node.name);
  if (which.options.length === names.length + 1) return;
  which.replaceChildren(make("option", "all processors", { value: "" }), ...names.map((name) => make("option", name, { value: name })));
}

export function opened() {
  looks = 0; // All rows are written, not only those that were in sight before.
}

export function show(seen, picture) {
  state = seen;
  showProcessors(picture);
  const known = new Set(state.tasks.map((one) => one.task));
  for (const [task, row] of kept) {
    if (known.has(task)) continue;
    sight.unobserve(row.node);
    kept.delete(task);
  }
  showTasks();
  const one = state.tasks.find((task) => task.task === chosen);
  if (one && said !== `${one.state} ${one.why}`) showDetails();
}

function cells(one) {
  const commit = one.committed_s ? `${span(state.at_s - one.committed_s)} ago` : "-";
  return [one.task, one.state, number(one.lag), span(one.waiting_s), number(one.rate), number(one.errors), number(one.retries), commit, one.position || "-", one.owner || "-"];
}

// The row of each task is kept, with the texts in it: most of its cells are the same the next time, and to draw is what
// costs. Rows that are out of sight are written at every fifth look, and when they come into sight.
const kept = new Map();
const SELDOM = 5;
let looks = 0;
const sight = new IntersectionObserver((seen) => {
  for (const one of seen) {
    const row = kept.get(one.target.dataset.row);
    if (!row) continue;
    row.seen = one.isIntersecting;
    if (row.seen && row.due) write(row, row.due);
  }
}, { rootMargin: "300px" });

function newRow(task) {
  const node = make("tr", undefined, { "data-row": task });
  COLUMNS.forEach((_, index) => node.append(put(make("td", undefined, index > 1 && index < 8 ? { class: "number" } : {}), "")));
  const button = make("button", "", { type: "button", "data-task": task });
  button.addEventListener("click", () => { chosen = task; showDetails(); });
  node.cells[0].replaceChildren(put(button, ""));
  const places = [...node.cells].map((cell, index) => (index ? cell : button).lastChild);
  const row = { node, places, texts: COLUMNS.map(() => ""), tone: "", seen: true, due: null };
  kept.set(task, row);
  sight.observe(node);
  return row;
}

// Put a task into its row, where a cell has another text now.
function write(row, one) {
  row.due = null;
  cells(one).forEach((text, index) => {
    if (row.texts[index] === text) return;
    row.texts[index] = text;
    row.places[index].data = text;
  });
  if (row.tone === one.tone) return;
  row.tone = one.tone;
  row.node.cells[1].className = `state ${one.tone}`;
}

function showTasks() {
  const [column, way] = sorted;
  const found = state.tasks.filter((one) => wanted(one.task, one.state, one.owner));
  if (column) found.sort((one, other) => way * compare(one[column], other[column]));
  const all = looks++ % SELDOM === 0;
  const made = found.map((one) => {
    const row = kept.get(one.task) || newRow(one.task);
    if (all || row.seen || row.tone !== one.tone || !row.node.isConnected) write(row, one);
    else row.due = one;
    return row.node;
  });
  if (made.length !== rows.rows.length || made.some((row, index) => rows.rows[index] !== row))
    keepFocus(rows, "data-task", () => rows.replaceChildren(...made));
}

async function showDetails() {
  const one = state.tasks.find((task) => task.task === chosen);
  if (!one) return;
  said = `${one.state} ${one.why}`;
  const parts = [make("h2", `${one.task}: ${one.state}`)];
  if (one.why) parts.push(make("p", one.why, { class: "text wrong" }));
  if (one.remedy) {
    const line = make("p", `Remedy: ${one.remedy} `, { class: "text" });
    line.append(copies(`${one.task}: ${one.why}; remedy: ${one.remedy}`));
    parts.push(line);
  }
  for (const note of one.notes) parts.push(make("p", note, { class: "text" }));
  try {
    const past = await ask(`api/history?task=${encodeURIComponent(one.task)}`);
    const charts = make("div", undefined, { class: "charts" });
    for (const [title, index] of [["deliveries per second", 1], ["messages behind", 2], ["latency, s: about how long a new message waits, lag / rate", 5], ["age of the oldest message, s", 3], ["errors since the task began", 4]])
      charts.append(chart(title, past.points, index, past.marks));
    parts.push(charts, make("p", past.marks.map(([when, what]) => `${clock(when)} ${what}`).join("; "), { class: "text" }));
  } catch (error) {
    parts.push(make("p", error.message, { class: "text" }));
  }
  details.replaceChildren(...parts);
}

function chart(title, points, index, marks) {
  const [width, height] = [300, 80];
  const known = points.filter((point) => point[index] !== null);
  const end = points.length ? points[points.length - 1][0] : 0;
  const top = Math.max(1, ...known.map((point) => point[index]));
  const x = (when) => width * (1 - Math.min(1, (end - when) / 3600));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${title}, last hour` });
  svg.append(draw("polyline", { points: known.map((point) => `${x(point[0])},${height - 2 - (height - 6) * point[index] / top}`).join(" ") }));
  for (const [when, what] of marks) {
    const line = draw("line", { class: "mark", x1: x(when), x2: x(when), y1: 0, y2: height });
    line.append(draw("title", {}, what));
    svg.append(line);
  }
  const figure = make("figure");
  const last = known.length ? number(known[known.length - 1][index]) : "-";
  figure.append(make("figcaption", `${title}: ${last}, at most ${known.length ? number(Math.max(...known.map((point) => point[index]))) : "-"}`), svg);
  return figure;
}
