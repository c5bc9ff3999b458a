// The graph as a picture, and what is unwell.

import { copies, draw, keepFocus, make, number, put, short, wanted } from "./dom.js";

export const name = "picture", title = "Graph";

const WIDE = 190, HIGH = 40, GAP_X = 120, GAP_Y = 26;

const canvas = make("div", undefined, { id: "canvas", tabindex: "0", role: "group", "aria-label": "Picture of the graph" });
const unwell = make("ul", undefined, { id: "unwell" });
let shell = null, state = null, picture = null, zoom = 1;

export function begin(given) {
  shell = given;
  const closer = make("button", "+", { type: "button", "aria-label": "Zoom in" });
  const farther = make("button", "\u2212", { type: "button", "aria-label": "Zoom out" });
  closer.addEventListener("click", () => larger(1.25));
  farther.addEventListener("click", () => larger(0.8));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+") larger(1.25);
    if (event.key === "-") larger(0.8);
  });
  const help = " Scroll with the arrow keys; + and - zoom. Tab goes from processor to processor, Enter shows its tasks.";
  return [put(make("p"), closer, " ", farther, help), canvas, make("h2", "What is unwell"), unwell];
}

export function show(seen, drawn) {
  [state, picture] = [seen, drawn];
  showPicture();
  showUnwell();
}

function showPicture() {
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
  keepFocus(canvas, "data-node", () => canvas.replaceChildren(svg));
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
    const open = () => shell.go("tasks", node.name);
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
  unwell.replaceChildren(...(items.length ? items : [make("li", state.trouble ? "not known" : "nothing")]));
}

function larger(factor) {
  zoom = Math.min(3, Math.max(0.2, zoom * factor));
  if (state) showPicture();
}
