// The open error messages by cause, and one of them in full.

import { confirmed, verb } from "./actions.js";
import { ask, clock, draw, keepFocus, make, number, put, table } from "./dom.js";

export const name = "errors", title = "Errors";

const count = make("button", "Count open error messages", { type: "button", id: "count" });
const counted = make("span", undefined, { id: "counted", role: "status" });
const causes = make("tbody", undefined, { id: "causes" });
const verbs = make("p");
const place = make("input", undefined, { id: "error-place", placeholder: "shop.errors/0@17", autocomplete: "off", maxlength: "400" });
const message = make("pre", undefined, { id: "message", tabindex: "0", role: "group", "aria-label": "Error message" });

export function begin() {
  count.addEventListener("click", countErrors);
  const titles = ["Processor", "Exception", "Kind", "Errors", "Asked", "First", "Last", "In time", "Newest", ""];
  const form = put(make("form"), make("label", "Error message ", { for: "error-place" }), place, " ", make("button", "Show", { type: "submit" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    showMessage(place.value.trim());
  });
  return [put(make("p"), count, " ", counted), table("Table of causes", titles, causes), form, verbs, message];
}

export function opened() {
  if (!counted.textContent) countErrors();
}

async function countErrors() {
  counted.textContent = "reading";
  count.disabled = true;
  try {
    const found = await ask("api/errors");
    const total = found.causes.reduce((sum, one) => sum + one.count, 0);
    counted.textContent = `${many(total, "open error message")} of ${many(found.causes.length, "cause")}`;
    keepFocus(causes, "data-key", () => causes.replaceChildren(...found.causes.map(causeRow)));
  } catch (error) {
    counted.textContent = error.message;
  }
  count.disabled = false;
}

const many = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;

function causeRow(one) {
  const row = make("tr"), key = [one.processor, one.exception, one.kind].join("\u0000");
  for (const text of [one.processor, one.exception, one.kind, number(one.count), number(one.asked), clock(one.first_ms / 1000), clock(one.last_ms / 1000)])
    row.append(make("td", text));
  const button = make("button", one.example, { type: "button", "data-key": `${key} show` });
  button.addEventListener("click", () => showMessage(one.example));
  const chosen = { processor: one.processor, exception: one.exception, kind: one.kind };
  const wishes = wishesOf(chosen, `${one.processor}: ${one.exception} (${one.kind})`);
  for (const wish of wishes) wish.setAttribute("data-key", `${key} ${wish.textContent}`);
  return put(row, put(make("td"), spark(one)), put(make("td"), button), put(make("td"), ...wishes));
}

// The dry run, the confirmation and the progress of replay and drop; `given` is one error message, or a cause.
function wishesOf(given, of) {
  return [["Replay", "replay"], ["Drop", "drop"]].map(([text, name]) => {
    const open = () => confirmed({ title: `${text} ${of}?`, name, given, text: "", button: text, dry: true, then: countAgain });
    const button = verb(`${text} \u2026`, `${text} ${of}`, open);
    button.dataset.wish = name;
    return button;
  });
}

// A row whose messages are all settled is gone, and what had the focus in it, too.
async function countAgain() {
  await countErrors();
  if (document.activeElement === document.body) count.focus();
}

async function showMessage(where) {
  verbs.replaceChildren();
  try {
    const found = await ask(`api/error?place=${encodeURIComponent(where)}`);
    message.textContent = found.lines.join("\n");
    place.value = where;
    verbs.replaceChildren(...wishesOf({ place: where }, where).filter((one) => found[one.dataset.wish]));
  } catch (error) {
    message.textContent = error.message;
  }
  message.focus();
}

// How many messages failed when: a bar for each part of the time from the first to the last.
function spark(one) {
  const [width, height] = [120, 20], most = Math.max(1, ...one.bars), wide = width / Math.max(1, one.bars.length);
  const label = `from ${clock(one.first_ms / 1000)} to ${clock(one.last_ms / 1000)}, at most ${number(most)} in ${one.bars.length} parts of this time`;
  const svg = draw("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  svg.append(draw("title", {}, label));
  one.bars.forEach((value, index) => {
    const high = value ? Math.max(1, height * value / most) : 0;
    svg.append(draw("rect", { x: index * wide, y: height - high, width: Math.max(1, wide - 1), height: high }));
  });
  return svg;
}
