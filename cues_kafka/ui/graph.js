// The graph as a picture, folded by the first word of names, with a list beside it; and what is unwell.

import { ask, copies, draw, keepFocus, make, number, put, short, wanted } from "./dom.js";

export const name = "picture", title = "Graph";

const WIDE = 190, HIGH = 40, GAP_X = 100, GAP_Y = 26;
const LEAST = 0.6, BESIDE = 0.8, BAR = 16; // The smallest picture that is read well, also beside the list; a scroll bar.

const canvas = make("div", undefined, { id: "canvas", tabindex: "0", role: "group", "aria-label": "Picture of the graph" });
const list = make("ul", undefined, { id: "processors", "aria-label": "Processors" });
const unwell = make("ul", undefined, { id: "unwell" });
const beside = put(make("div", undefined, { class: "beside" }), list, canvas);
const folds = new Set();
let shell = null, state = null, whole = null, picture = null, zoom = 1, fitted = "", byHand = false;

export function begin(given) {
  shell = given;
  const closer = make("button", "+", { type: "button", "aria-label": "Zoom in" });
  const farther = make("button", "\u2212", { type: "button", "aria-label": "Zoom out" });
  const fitting = make("button", "Fit", { type: "button", "aria-label": "Fit the picture into its frame" });
  fitting.addEventListener("click", () => { byHand = false; fitted = ""; if (state) showPicture(); });
  window.addEventListener("resize", () => { if (state && canvas.clientWidth) showPicture(); });
  closer.addEventListener("click", () => larger(1.25));
  farther.addEventListener("click", () => larger(0.8));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+") larger(1.25);
    if (event.key === "-") larger(0.8);
  });
  const help = " Scroll with the arrow keys; + and - zoom. Tab goes from processor to processor, Enter shows its tasks.";
  return [put(make("p"), closer, " ", farther, " ", fitting, help), beside, make("h2", "What is unwell"), unwell];
}

export function show(seen, given) {
  state = seen;
  if (!whole) {
    whole = picture = given;
    if (whole.advised.length) fold(...whole.advised);
  }
  showPicture();
  showList();
  showUnwell();
}

// Fold groups that are not folded, and unfold those that are; the places of a picture are those of the program.
async function fold(...words) {
  const turn = () => { for (const word of words) if (!folds.delete(word)) folds.add(word); };
  turn();
  const asked = [...folds].join(",");
  try {
    const found = await ask(`api/graph?fold=${encodeURIComponent(asked)}`);
    if (asked !== [...folds].join(",")) return;
    picture = found;
  } catch (error) {
    turn();
  }
  showPicture();
  showList();
}

const place = (node) => [20 + node.column * (WIDE + GAP_X), 20 + node.row * (HIGH + GAP_Y)];

function showPicture() {
  const nodes = new Map(picture.nodes.map((node) => [node.id, node]));
  const width = 40 + WIDE + Math.max(0, ...picture.nodes.map((node) => place(node)[0]));
  const height = 40 + HIGH + Math.max(0, ...picture.nodes.map((node) => place(node)[1]));
  fit(width, height);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width: width * zoom, height: height * zoom });
  for (const arrow of picture.arrows) drawArrow(svg, arrow, place(nodes.get(arrow.start)), place(nodes.get(arrow.end)));
  for (const node of picture.nodes) svg.append(drawNode(node, ...place(node)));
  keepFocus(canvas, "data-node", () => canvas.replaceChildren(svg));
}

// As a whole in its frame where it can be read then, else in its own size; below the list where that gives more room.
// Only where something has changed that it depends on: to ask for a width makes the browser lay out the page.
function fit(width, height) {
  const now = `${width} ${height} ${window.innerWidth} ${window.innerHeight}`;
  if (now === fitted || !canvas.clientWidth) return;
  fitted = now;
  const room = () => (canvas.clientWidth - (canvas.scrollHeight > canvas.clientHeight ? 0 : BAR)) / width;
  beside.classList.remove("stacked");
  if (room() < BESIDE) beside.classList.add("stacked");
  if (!byHand) zoom = room() < LEAST ? 1 : Math.min(1, room());
}

function drawArrow(svg, arrow, [x, y], [u, v]) {
  const [fromX, fromY, toY] = [x + WIDE, y + HIGH / 2, v + HIGH / 2];
  svg.append(draw("path", {
    class: arrow.role, d: `M${fromX},${fromY} C${fromX + 50},${fromY} ${u - 50},${toY} ${u},${toY} l-7,-4 m7,4 l-7,4`,
  }));
  if (!arrow.reads) return;
  const flows = state.flows.filter((one) => arrow.bindings.some(([processor, topic]) => one.processor === processor && one.topic === topic));
  const [rate, lag] = [total(flows, "rate"), total(flows, "lag")];
  const label = (text, y) => svg.append(draw("text", { class: "small", x: (fromX + u) / 2, y, "text-anchor": "middle" }, text));
  if (rate !== null) label(`${number(rate)}/s`, (fromY + toY) / 2 - 5);
  if (lag !== null) label(`${number(lag)} behind`, (fromY + toY) / 2 + 13);
}

function total(flows, field) {
  const known = flows.filter((one) => one[field] !== null);
  return known.length ? known.reduce((sum, one) => sum + one[field], 0) : null;
}

// The processors of a node, their worst tone, and their states in words.
function summed(names) {
  const own = state.tasks.filter((one) => names.includes(one.processor));
  const tones = names.map((one) => state.tones[one] || "");
  const tone = ["wrong", "paused", "well"].find((one) => tones.includes(one)) || "";
  return { own, tone, states: [...new Set(own.map((one) => one.state))].join(", "), lag: total(own, "lag") };
}

function drawNode(node, x, y) {
  const names = node.kind === "group" ? picture.groups[node.name] : node.kind === "processor" || node.kind === "feed" ? [node.name] : [];
  const { own, tone, states } = summed(names);
  const dim = wanted(node.name, states, ...names) ? "" : "dim";
  const group = draw("g", { class: `node ${node.kind} ${tone} ${dim}`, "data-node": node.id });
  group.append(draw("title", {}, `${node.kind} ${node.name}${states ? `: ${states}` : ""}`));
  group.append(draw("rect", { x, y, width: WIDE, height: HIGH, rx: 4 }));
  group.append(draw("text", { x: x + 10, y: y + (names.length ? 17 : 25) }, short(node.kind === "group" ? `${node.name} (${names.length})` : node.name, 24)));
  if (names.length) {
    group.append(draw("text", { class: "small", x: x + 10, y: y + 32 }, short(`${own.length} ${own.length === 1 ? "task" : "tasks"}: ${states || "not seen"}`, 30)));
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "button");
    const open = () => (node.kind === "group" ? fold(node.name) : shell.go("tasks", node.name));
    group.addEventListener("click", open);
    group.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  }
  return group;
}

function showList() {
  const works = whole.nodes.filter((node) => node.kind === "processor" || node.kind === "feed").map((node) => node.name);
  const grouped = new Map(Object.entries(whole.groups).flatMap(([word, names]) => names.map((one) => [one, word])));
  const items = [], met = new Set();
  for (const one of works) {
    const word = grouped.get(one);
    if (word !== undefined && !met.has(word)) {
      met.add(word);
      items.push(...groupItem(word, whole.groups[word]));
    }
    if (word === undefined) items.push(...processorItem(one));
  }
  keepFocus(list, "data-item", () => list.replaceChildren(...items));
}

function groupItem(word, names) {
  const inner = folds.has(word) ? [] : names.flatMap((one) => processorItem(one));
  const { tone, states, lag } = summed(names);
  if (!wanted(word, states, ...names)) return [];
  const button = make("button", `${folds.has(word) ? "\u25b8" : "\u25be"} ${word} (${names.length})`, {
    type: "button", "aria-expanded": String(!folds.has(word)), "data-item": `group ${word}`,
  });
  button.addEventListener("click", () => fold(word));
  const item = put(make("li"), button, make("span", ` ${states || "not seen"}, ${number(lag)} behind`, { class: tone }));
  return [inner.length ? put(item, put(make("ul"), ...inner)) : item];
}

function processorItem(one) {
  const { tone, states, lag } = summed([one]);
  if (!wanted(one, states)) return [];
  const button = make("button", one, { type: "button", "data-item": `processor ${one}` });
  button.addEventListener("click", () => find(one));
  return [put(make("li"), button, make("span", ` ${states || "not seen"}, ${number(lag)} behind`, { class: tone }))];
}

function find(processor) {
  for (const one of canvas.querySelectorAll("[data-node]")) {
    if (one.getAttribute("data-node") !== `processor ${processor}`) continue;
    one.scrollIntoView({ block: "center", inline: "center" });
    one.focus();
  }
}

function showUnwell() {
  const items = state.unwell.map(([what, remedy]) => {
    const item = make("li");
    item.append(make("span", what, { class: "text" }));
    if (remedy) item.append(make("br"), make("span", `Remedy: ${remedy} `, { class: "text" }), copies(`${what}; remedy: ${remedy}`));
    return item;
  });
  unwell.replaceChildren(...(items.length ? items : [make("li", state.trouble ? "not known" : "nothing")]));
}

function larger(factor) {
  byHand = true;
  zoom = Math.min(3, Math.max(0.2, zoom * factor));
  if (state) showPicture();
}
