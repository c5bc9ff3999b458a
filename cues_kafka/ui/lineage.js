// The path of a message through the graph: what it was made of, and what became of it.

import { ask, draw, make, put, short } from "./dom.js";

export const name = "lineage", title = "Lineage";

const WIDE = 230, HIGH = 40, GAP_X = 150, GAP_Y = 26;

const place = make("input", undefined, { id: "place", placeholder: "orders/3@17", maxlength: "400", autocomplete: "off" });
const find = make("button", "Trace", { type: "button" });
const told = make("p", "Type a message as TOPIC/PARTITION@OFFSET, or press Trace beside one on the page Messages.", { role: "status" });
const path = make("div", undefined, { class: "canvas", tabindex: "0", role: "group", "aria-label": "Path of the message" });
const back = make("pre", undefined, { tabindex: "0", role: "group", "aria-label": "What it was made of" });
const forward = make("pre", undefined, { tabindex: "0", role: "group", "aria-label": "What became of it" });

export function begin() {
  find.addEventListener("click", () => trace(place.value.trim()));
  place.addEventListener("keydown", (event) => { if (event.key === "Enter") trace(place.value.trim()); });
  const form = put(make("p", undefined, { class: "form" }), put(make("label", "Message "), place), find);
  return [form, told, path, make("h2", "What it was made of"), back, make("h2", "What became of it"), forward];
}

export async function trace(wanted) {
  if (find.disabled) return;
  find.disabled = true;
  place.value = wanted;
  told.textContent = "reading";
  try {
    const found = await ask(`api/path?place=${encodeURIComponent(wanted)}`);
    told.textContent = `${found.ended ? `More may have become of it, because ${found.ended}. ` : ""}Bounds: ${found.bounds}.`;
    path.replaceChildren(picture(found));
    back.textContent = found.back.join("\n");
    forward.textContent = found.forward.join("\n");
  } catch (error) {
    told.textContent = error.message;
    path.replaceChildren();
    back.textContent = forward.textContent = "";
  }
  find.disabled = false;
}

function picture(found) {
  const spot = (node) => [20 + node.column * (WIDE + GAP_X), 20 + node.row * (HIGH + GAP_Y)];
  const nodes = new Map(found.nodes.map((node) => [node.id, node]));
  const width = 40 + WIDE + Math.max(0, ...found.nodes.map((node) => spot(node)[0]));
  const height = 40 + HIGH + Math.max(0, ...found.nodes.map((node) => spot(node)[1]));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  for (const arrow of found.arrows) {
    const [x, y] = spot(nodes.get(arrow.start)), [u, v] = spot(nodes.get(arrow.end));
    const [fromX, fromY, toY] = [x + WIDE, y + HIGH / 2, v + HIGH / 2];
    const line = draw("path", { d: `M${fromX},${fromY} C${fromX + 50},${fromY} ${u - 50},${toY} ${u},${toY} l-7,-4 m7,4 l-7,4` });
    line.append(draw("title", {}, `${arrow.task}, batch ${arrow.sequence}`));
    svg.append(line, draw("text", { class: "small", x: (fromX + u) / 2, y: (fromY + toY) / 2 - 5, "text-anchor": "middle" }, short(arrow.task, 24)));
  }
  for (const node of found.nodes) svg.append(box(node, found.root, ...spot(node)));
  return svg;
}

function box(node, root, x, y) {
  const tone = node.error ? "wrong" : node.id === root ? "root" : "";
  const group = draw("g", { class: `node topic ${tone}`, tabindex: "0", role: "button", "aria-label": `Trace ${node.id}` });
  group.append(draw("title", {}, `${node.id}: ${node.state}${node.error ? `, ${node.error}` : ""}, key ${node.key}`));
  group.append(draw("rect", { x, y, width: WIDE, height: HIGH }));
  const text = short([...node.id].length > 30 ? `\u2026${[...node.id].slice(-29).join("")}` : node.id, 30);
  group.append(draw("text", { x: x + 12, y: y + 17 }, text));
  group.append(draw("text", { class: "small", x: x + 12, y: y + 32 }, short(`${node.error || node.state}, key ${node.key}`, 36)));
  group.addEventListener("click", () => trace(node.id));
  group.addEventListener("keydown", (event) => { if (event.key === "Enter") trace(node.id); });
  return group;
}
