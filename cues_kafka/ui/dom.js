// What all pages use. Values go into text nodes and attributes only, never into HTML.

const SVG = "http://www.w3.org/2000/svg";

export const at = (id) => document.getElementById(id);

export function make(name, text, attributes = {}) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

export function put(node, ...children) {
  node.append(...children);
  return node;
}

export function draw(name, attributes = {}, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

export function span(seconds) {
  if (seconds === null) return "-";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  return seconds >= 10 ? `${Math.round(seconds)} s` : `${Math.max(0, seconds).toFixed(1)} s`;
}

// Made once: `toLocaleString` makes such a format at each call, for thousands of cells.
const format = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const collator = new Intl.Collator("en", { numeric: true });

export const number = (value) => value === null ? "-" : format.format(value);

// A record may have any number as its time. What is outside of the years 1 to 9999 stays a number.
export function clock(seconds) {
  if (!seconds) return "-";
  if (seconds < -62135596800 || seconds >= 253402300800) return `${Math.round(seconds * 1000)} ms`;
  return new Date(seconds * 1000).toISOString().slice(0, 19) + "Z";
}

export const short = (text, most) => text.length > most ? text.slice(0, most - 1) + "\u2026" : text;

export function wanted(...texts) {
  const word = at("search").value.trim().toLowerCase();
  return !word || texts.some((text) => text.toLowerCase().includes(word));
}

export function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  return typeof one === "number" ? one - other : collator.compare(String(one), String(other));
}

// Whatever is asked is answered in JSON; a refusal has its reason in `why`.
export function ask(path) {
  return answered(path, {});
}

// What changes something: our header is one that a page of another site cannot send.
export function send(path, given) {
  const headers = { "Content-Type": "application/json", "X-Cues-Kafka": "page" };
  return answered(path, { method: "POST", headers, body: JSON.stringify(given) });
}

async function answered(path, options) {
  const answer = await fetch(path, options);
  const data = await answer.json();
  if (!answer.ok) throw refused(answer, data);
  return data;
}

// What the program has refused: its reason, the status, and the challenge to a page that it does not know.
export const refused = (answer, data) => Object.assign(new Error(data.why), { status: answer.status, challenge: data.challenge });

// A list has new rows at each look; what had the focus keeps it.
export function keepFocus(parent, attribute, change) {
  const focused = document.activeElement && document.activeElement.getAttribute(attribute);
  change();
  if (!focused) return;
  for (const one of parent.querySelectorAll(`[${attribute}]`)) if (one.getAttribute(attribute) === focused) one.focus();
}

export function table(label, titles, body) {
  const head = put(make("thead"), put(make("tr"), ...titles.map((one) => (typeof one === "string" ? make("th", one) : put(make("th"), one)))));
  const wide = make("div", undefined, { class: "wide", tabindex: "0", role: "group", "aria-label": label });
  return put(wide, put(make("table"), head, body));
}

export function copies(text) {
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
