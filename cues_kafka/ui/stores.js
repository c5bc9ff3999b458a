// Entries of a store, looked up by their key.

import { ask, make, number, put, table } from "./dom.js";

export const name = "stores", title = "Stores";

const store = make("select", undefined, { id: "store" });
const key = make("input", undefined, { id: "store-key", placeholder: "a key", maxlength: "2000", autocomplete: "off" });
const partition = make("input", undefined, { id: "store-partition", placeholder: "all", maxlength: "9", autocomplete: "off" });
const begins = make("input", undefined, { id: "store-begins", type: "checkbox" });
const find = make("button", "Look up", { type: "button" });
const told = make("p", undefined, { role: "status" });
const rows = make("tbody", undefined, { id: "entries" });
let names = null, bounds = "";

export function begin() {
  find.addEventListener("click", lookUp);
  for (const input of [key, partition]) input.addEventListener("keydown", (event) => { if (event.key === "Enter") lookUp(); });
  const labels = [["Store ", store], ["Key ", key], ["Partition ", partition]].map(([label, input]) => put(make("label", label), input));
  labels.splice(2, 0, put(make("label"), begins, " and keys that begin with it"));
  return [put(make("p", undefined, { class: "form" }), ...labels, find), told, table("Table of entries", ["Key", "Value"], rows)];
}

export async function opened() {
  if (names) return;
  try {
    const found = await ask("api/stores");
    [names, bounds] = [found.stores, found.bounds];
    store.replaceChildren(...names.map((one, index) => make("option", `${one.processor}: ${one.store} (keys are ${one.keys})`, { value: String(index) })));
    find.disabled = !names.length;
    told.textContent = names.length ? `Only the partition of the key is read, unless its entry is in another one. Bounds: ${bounds}.` : "This graph has no stores.";
  } catch (error) {
    told.textContent = error.message;
  }
}

async function lookUp() {
  const one = names && names[Number(store.value)];
  if (!one || find.disabled) return;
  find.disabled = true;
  told.textContent = "reading";
  const given = new URLSearchParams({ processor: one.processor, store: one.store, key: key.value });
  if (begins.checked) given.set("begins", "yes");
  if (partition.value.trim()) given.set("partition", partition.value.trim());
  try {
    const found = await ask(`api/entry?${given}`);
    const more = found.more ? ", and there are more" : "";
    const at = found.true_up_to.length ? ` True up to ${found.true_up_to.join(", ")}.` : "";
    told.textContent = `${number(found.rows.length)} shown${more}, of ${number(found.entries)} entries of ${found.read}.${at} Bounds: ${bounds}.`;
    rows.replaceChildren(...found.rows.map((entry) => put(make("tr"), make("td", entry.key, { class: "key" }), make("td", entry.value, { class: "value" }))));
  } catch (error) {
    told.textContent = error.message;
    rows.replaceChildren();
  }
  find.disabled = false;
}
