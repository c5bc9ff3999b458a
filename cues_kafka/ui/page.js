// The pages of the view. Values go into text nodes and attributes only, never into HTML.
"use strict";

const EVERY_MS = 2000;
const WIDE = 190, HIGH = 40, GAP_X = 120, GAP_Y = 26;
const SVG = "http://www.w3.org/2000/svg";
const COLUMNS = [
  ["Task", "task"], ["State", "state"], ["Lag", "lag"], ["Oldest", "waiting_s"], ["Rate/s", "rate"],
  ["Errors", "errors"], ["Retries", "retries"], ["Commit", "committed_s"], ["Position", "position"], ["Owner", "owner"],
];

const at = (id) => document.getElementById(id);
let state = null, picture = null, tag = "", sorted = ["", 1], chosen = "", zoom = 1;

function make(name, text, attributes = {}) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function draw(name, attributes = {}, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function span(seconds) {
  if (seconds === null) return "-";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  return seconds >= 10 ? `${Math.round(seconds)} s` : `${Math.max(0, seconds).toFixed(1)} s`;
}

const number = (value) => value === null ? "-" : value.toLocaleString("en", { maximumFractionDigits: 1 });
const clock = (seconds) => seconds ? new Date(seconds * 1000).toISOString().slice(0, 19) + "Z" : "-";
const short = (text, most) => text.length > most ? text.slice(0, most - 1) + "\u2026" : text;

function wanted(...texts) {
  const word = at("search").value.trim().toLowerCase();
  return !word || texts.some((text) => text.toLowerCase().includes(word));
}

async function ask(path, headers = {}) {
  const answer = await fetch(path, { headers });
  if (answer.status === 304) return null;
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.why);
  tag = answer.headers.get("ETag") || tag;
  return data;
}

function tell(text) {
  at("trouble").textContent = text;
  at("trouble").hidden = !text;
}

async function look() {
  try {
    picture = picture || await ask("api/graph");
    const found = await ask("api/state", tag ? { "If-None-Match": tag } : {});
    if (found) state = found;
    const old = state.tasks.length ? ` What is below was seen at ${clock(state.at_s)}.` : "";
    tell(state.trouble ? `No news of the cluster: ${state.trouble}${old}` : "");
    if (found) show();
  } catch (error) {
    tag = "";
    tell(`The program does not answer: ${error.message}. Does cues-kafka ui still run? After a restart, open the address that it prints.`);
  }
  setTimeout(look, EVERY_MS);
}

function show() {
  at("graph").textContent = state.graph;
  document.title = `${state.ok ? "" : "(!) "}${state.graph} - cues-kafka`;
  const bad = state.tasks.filter((one) => one.tone === "wrong").length;
  const lag = state.tasks.reduce((sum, one) => sum + (one.lag || 0), 0);
  at("whole").textContent = `${state.ok ? "all is well" : bad ? `${bad} of ${state.tasks.length} tasks are unwell` : "not well"}, ${number(lag)} behind, ${clock(state.at_s)}`;
  at("whole").className = state.ok ? "well" : "wrong";
  showPicture();
  showUnwell();
  showTasks();
}

function showPicture() {
  const focused = document.activeElement && document.activeElement.getAttribute("data-node");
  const place = (node) => [20 + node.column * (WIDE + GAP_X), 20 + node.row * (HIGH + GAP_Y)];
  const nodes = new Map(picture.nodes.map((node) => [node.id, node]));
  const width = 40 + WIDE + Math.max(0, ...picture.nodes.map((node) => place(node)[0]));
  const height = 40 + HIGH + Math.max(0, ...picture.nodes.map((node) => place(node)[1]));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width: width * zoom, height: height * zoom });
  for (const arrow of picture.arrows) {
    const [x, y] = place(nodes.get(arrow.start)), [u, v] = place(nodes.get(arrow.end));
    const [fromX, fromY, toY] = [x + WIDE, y + HIGH / 2, v + HIGH / 2];
    svg.append(draw("path", {
      class: arrow.role, d: `M${fromX},${fromY} C${fromX + 50},${fromY} ${u - 50},${toY} ${u},${toY} l-7,-4 m7,4 l-7,4`,
    }));
    const flow = state.flows.find((one) => arrow.reads && one.processor === arrow.processor && one.topic === arrow.topic);
    if (!flow) continue;
    const label = (text, y) => svg.append(draw("text", { class: "small", x: (fromX + u) / 2, y, "text-anchor": "middle" }, text));
    if (flow.rate !== null) label(`${number(flow.rate)}/s`, (fromY + toY) / 2 - 5);
    if (flow.lag !== null) label(`${number(flow.lag)} behind`, (fromY + toY) / 2 + 13);
  }
  for (const node of picture.nodes) svg.append(drawNode(node, ...place(node)));
  at("canvas").replaceChildren(svg);
  if (focused) for (const one of svg.querySelectorAll("[data-node]")) if (one.getAttribute("data-node") === focused) one.focus();
}

function drawNode(node, x, y) {
  const works = node.kind === "processor" || node.kind === "feed";
  const own = works ? state.tasks.filter((one) => one.processor === node.name) : [];
  const tone = works ? state.tones[node.name] || "" : "";
  const states = [...new Set(own.map((one) => one.state))].join(", ");
  const dim = wanted(node.name, states) ? "" : "dim";
  const group = draw("g", { class: `node ${node.kind} ${tone} ${dim}`, "data-node": node.id });
  group.append(draw("title", {}, `${node.kind} ${node.name}${states ? `: ${states}` : ""}`));
  group.append(draw("rect", { x, y, width: WIDE, height: HIGH, rx: 4 }));
  group.append(draw("text", { x: x + 10, y: y + (works ? 17 : 25) }, short(node.name, 24)));
  if (works) {
    group.append(draw("text", { class: "small", x: x + 10, y: y + 32 }, short(`${own.length} ${own.length === 1 ? "task" : "tasks"}: ${states || "not seen"}`, 30)));
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "button");
    const open = () => { at("search").value = node.name; view("tasks"); show(); };
    group.addEventListener("click", open);
    group.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  }
  return group;
}

function showUnwell() {
  const items = state.unwell.map(([what, remedy]) => {
    const item = make("li");
    item.append(make("span", what, { class: "text" }));
    if (remedy) item.append(make("br"), make("span", `Remedy: ${remedy} `, { class: "text" }), copies(`${what}; remedy: ${remedy}`));
    return item;
  });
  at("unwell").replaceChildren(...(items.length ? items : [make("li", state.trouble ? "not known" : "nothing")]));
}

function copies(text) {
  const button = make("button", "Copy", { type: "button" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (error) {
      button.textContent = "Not copied: select the text";
    }
  });
  return button;
}

function cells(one) {
  const commit = one.committed_s ? `${span(state.at_s - one.committed_s)} ago` : "-";
  return [one.task, one.state, number(one.lag), span(one.waiting_s), number(one.rate), number(one.errors), number(one.retries), commit, one.position || "-", one.owner || "-"];
}

function showTasks() {
  const [column, way] = sorted;
  const rows = state.tasks.filter((one) => wanted(one.task, one.state, one.owner));
  if (column) rows.sort((one, other) => way * compare(one[column], other[column]));
  const focused = document.activeElement && document.activeElement.getAttribute("data-task");
  const made = rows.map((one) => {
    const row = make("tr");
    cells(one).forEach((text, index) => {
      const cell = make("td", index ? text : undefined, index > 1 && index < 8 ? { class: "number" } : {});
      if (index === 0) {
        const button = make("button", text, { type: "button", "data-task": one.task });
        button.addEventListener("click", () => { chosen = one.task; showDetails(); });
        cell.append(button);
      }
      if (index === 1) cell.className = `state ${one.tone}`;
      row.append(cell);
    });
    return row;
  });
  at("rows").replaceChildren(...made);
  if (focused) for (const one of at("rows").querySelectorAll("[data-task]")) if (one.getAttribute("data-task") === focused) one.focus();
}

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  return typeof one === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
}

async function showDetails() {
  const one = state.tasks.find((task) => task.task === chosen);
  if (!one) return;
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
    for (const [title, index] of [["deliveries per second", 1], ["messages behind", 2], ["age of the oldest message, s", 3], ["errors since the task began", 4]])
      charts.append(chart(title, past.points, index, past.marks));
    parts.push(charts, make("p", past.marks.map(([when, what]) => `${clock(when)} ${what}`).join("; "), { class: "text" }));
  } catch (error) {
    parts.push(make("p", error.message, { class: "text" }));
  }
  at("details").replaceChildren(...parts);
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

async function countErrors() {
  at("counted").textContent = "reading";
  at("count").disabled = true;
  try {
    const found = await ask("api/errors");
    at("counted").textContent = `${number(found.causes.reduce((sum, one) => sum + one.count, 0))} open error messages, ${number(found.causes.length)} causes`;
    at("causes").replaceChildren(...found.causes.map(causeRow));
  } catch (error) {
    at("counted").textContent = error.message;
  }
  at("count").disabled = false;
}

function causeRow(one) {
  const row = make("tr");
  for (const text of [one.processor, one.exception, one.kind, number(one.count), number(one.asked), clock(one.first_ms / 1000), clock(one.last_ms / 1000)])
    row.append(make("td", text));
  const button = make("button", one.example, { type: "button" });
  button.addEventListener("click", async () => {
    try {
      at("message").textContent = (await ask(`api/error?place=${encodeURIComponent(one.example)}`)).lines.join("\n");
    } catch (error) {
      at("message").textContent = error.message;
    }
    at("message").focus();
  });
  const cell = make("td");
  cell.append(button);
  row.append(cell);
  return row;
}

function view(name) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== name;
  for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === name));
  history.replaceState(null, "", `#${name}`);
  if (name === "errors" && !at("counted").textContent) countErrors();
}

function larger(factor) {
  zoom = Math.min(3, Math.max(0.2, zoom * factor));
  if (state) showPicture();
}

for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => view(button.dataset.view));
for (const [title, column] of COLUMNS) {
  const head = make("th"), button = make("button", title, { type: "button" });
  button.addEventListener("click", () => { sorted = [column, sorted[0] === column ? -sorted[1] : 1]; showTasks(); });
  head.append(button);
  at("titles").append(head);
}
at("search").addEventListener("input", () => { if (state) show(); });
at("count").addEventListener("click", countErrors);
at("closer").addEventListener("click", () => larger(1.25));
at("farther").addEventListener("click", () => larger(0.8));
at("canvas").addEventListener("keydown", (event) => {
  if (event.key === "+") larger(1.25);
  if (event.key === "-") larger(0.8);
});
view(["tasks", "errors"].includes(location.hash.slice(1)) ? location.hash.slice(1) : "picture");
look();
