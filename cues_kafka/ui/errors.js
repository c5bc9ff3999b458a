// The open error messages by cause, and one of them in full.

import { ask, clock, make, number, put, table } from "./dom.js";

export const name = "errors", title = "Errors";

const count = make("button", "Count open error messages", { type: "button", id: "count" });
const counted = make("span", undefined, { id: "counted", role: "status" });
const causes = make("tbody", undefined, { id: "causes" });
const message = make("pre", undefined, { id: "message", tabindex: "0", role: "group", "aria-label": "Error message" });

export function begin() {
  count.addEventListener("click", countErrors);
  const titles = ["Processor", "Exception", "Kind", "Errors", "Asked", "First", "Last", "Newest"];
  return [put(make("p"), count, " ", counted), table("Table of causes", titles, causes), message];
}

export function opened() {
  if (!counted.textContent) countErrors();
}

async function countErrors() {
  counted.textContent = "reading";
  count.disabled = true;
  try {
    const found = await ask("api/errors");
    counted.textContent = `${number(found.causes.reduce((sum, one) => sum + one.count, 0))} open error messages, ${number(found.causes.length)} causes`;
    causes.replaceChildren(...found.causes.map(causeRow));
  } catch (error) {
    counted.textContent = error.message;
  }
  count.disabled = false;
}

function causeRow(one) {
  const row = make("tr");
  for (const text of [one.processor, one.exception, one.kind, number(one.count), number(one.asked), clock(one.first_ms / 1000), clock(one.last_ms / 1000)])
    row.append(make("td", text));
  const button = make("button", one.example, { type: "button" });
  button.addEventListener("click", async () => {
    try {
      message.textContent = (await ask(`api/error?place=${encodeURIComponent(one.example)}`)).lines.join("\n");
    } catch (error) {
      message.textContent = error.message;
    }
    message.focus();
  });
  const cell = make("td");
  cell.append(button);
  row.append(cell);
  return row;
}
