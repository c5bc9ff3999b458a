// The newest messages of a topic, filtered by key, time and text; and one of them in full.

import { ask, make, number, put, table } from "./dom.js";
import { trace } from "./lineage.js";

export const name = "messages", title = "Messages";

const topic = make("select", undefined, { id: "topic" });
const fields = [
  ["partition", "Partition", "all"], ["key", "Key", "the whole key"], ["text", "Text", "in the value"],
  ["since", "From", "2026-11-25T10:00Z"], ["until", "Before", "2026-11-25T11:00Z"],
].map(([id, label, hint]) => [id, label, make("input", undefined, { id: `message-${id}`, placeholder: hint, maxlength: "2000", autocomplete: "off" })]);
const read = make("button", "Show", { type: "button" });
const told = make("p", undefined, { role: "status" });
const rows = make("tbody", undefined, { id: "message-rows" });
const whole = make("pre", undefined, { tabindex: "0", role: "group", "aria-label": "Message" });
let shell = null, bounds = "", shown = 0;

export function begin(given) {
  shell = given;
  read.addEventListener("click", newest);
  const form = put(make("p", undefined, { class: "form" }), put(make("label", "Topic "), topic));
  for (const [, label, input] of fields) {
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") newest(); });
    form.append(put(make("label", `${label} `), input));
  }
  form.append(read);
  return [form, told, table("Table of messages", ["Message", "Time", "Key", "Value", "Bytes", "Lineage"], rows), whole];
}

export async function opened() {
  if (topic.options.length) return;
  try {
    const found = await ask("api/topics");
    [bounds, shown] = [found.bounds, found.shown];
    topic.replaceChildren(...found.topics.map((one) => make("option", one, { value: one })));
    told.textContent = `Shows the newest ${shown} messages that fit. Looks at ${bounds} at most.`;
  } catch (error) {
    told.textContent = error.message;
  }
}

async function newest() {
  if (read.disabled) return;
  read.disabled = true;
  told.textContent = "reading";
  const given = new URLSearchParams({ topic: topic.value });
  for (const [id, , input] of fields) if (input.value) given.set(id, id === "key" || id === "text" ? input.value : input.value.trim());
  try {
    const found = await ask(`api/messages?${given}`);
    const more = found.ended ? `It ended ${found.ended}, so more may be there: bounds are ${found.bounds}.`
      : `The newest ${shown} are shown at most; bounds are ${found.bounds}.`;
    told.textContent = `${number(found.rows.length)} shown, ${number(found.messages)} looked at. ${more}`;
    rows.replaceChildren(...found.rows.map(messageRow));
    whole.textContent = "";
  } catch (error) {
    told.textContent = error.message;
    rows.replaceChildren();
    whole.textContent = "";
  }
  read.disabled = false;
}

function messageRow(one) {
  const open = make("button", one.place, { type: "button" });
  open.addEventListener("click", () => { whole.textContent = inFull(one).join("\n"); whole.focus(); });
  const follow = make("button", "Trace", { type: "button", "aria-label": `Trace ${one.place}` });
  follow.addEventListener("click", () => { shell.go("lineage"); trace(one.place); });
  const value = make("td", one.why ? `cannot be decoded: ${one.value}` : one.value, { class: one.why ? "value wrong" : "value" });
  return put(
    make("tr"), put(make("td"), open), make("td", one.time), make("td", one.key === null ? "-" : one.key, { class: "key" }), value,
    make("td", number(one.size), { class: "number" }), put(make("td"), follow),
  );
}

function inFull(one) {
  const headers = one.headers.map(([header, value]) => `header    ${header}: ${value}`);
  if (one.more) headers.push(`header    and ${number(one.more)} more headers`);
  const why = one.why ? [`why       ${one.why}`] : [];
  return [`message   ${one.place}`, `time      ${one.time}`, `key       ${one.key === null ? "-" : one.key}`, ...headers, ...why, `value     ${one.value}`];
}
