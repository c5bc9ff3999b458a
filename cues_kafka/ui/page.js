// The frame of the view: its pages, the filter, and the newest overview, which all pages show.

import { ask, at, clock, make, refused } from "./dom.js";
import { comeBack, keepPass } from "./back.js";
import { lookAtJob } from "./actions.js";
import * as graph from "./graph.js";
import * as tasks from "./tasks.js";
import * as errors from "./errors.js";
import * as messages from "./messages.js";
import * as lineage from "./lineage.js";
import * as stores from "./stores.js";

// A page is a module with a `name`, a `title`, `begin(shell)`, which gives what its section holds, and, if it wants,
// `show(state, picture)`, called while it is looked at, at each new overview and when the filter changes, and
// `opened()`, called when it begins to be looked at. `shell.go(name, filter)` opens a page.
const PAGES = [
  graph,
  tasks,
  errors,
  messages,
  lineage,
  stores,
];

const EVERY_MS = 2000;
let state = null, picture = null, tag = "";

// The newest overview; null: it is the one that we have.
async function newer() {
  const answer = await fetch("api/state", { headers: tag ? { "If-None-Match": tag } : {} });
  if (answer.status === 304) return null;
  const data = await answer.json();
  if (!answer.ok) throw refused(answer, data);
  tag = answer.headers.get("ETag");
  return data;
}

function tell(text) {
  at("trouble").textContent = text;
  at("trouble").hidden = !text;
}

async function look() {
  try {
    picture = picture || await ask("api/graph");
    const found = await newer();
    await lookAtJob();
    await keepPass();
    if (found) state = found;
    const old = state.tasks.length ? ` What is below was seen at ${clock(state.at_s)}.` : "";
    tell(state.trouble ? `No news of the cluster: ${state.trouble}${old}` : "");
    if (found) show();
  } catch (error) {
    tag = "";
    if (error.status === 403) await enter(error);
    else tell(`The program does not answer: ${error.message}. Does cues-kafka ui still run? After a restart on the same port, this page comes back by itself.`);
  }
  setTimeout(look, EVERY_MS);
}

// The program was restarted and does not know this page. Scripts and graph may be others now, so all is loaded again.
async function enter(error) {
  if (await comeBack(error.challenge)) location.reload();
  else tell(`This page may not look: ${error.message}.`);
}

function show() {
  at("graph").textContent = state.graph;
  document.title = `${state.ok ? "" : "(!) "}${state.graph} - cues-kafka`;
  const bad = state.tasks.filter((one) => one.tone === "wrong").length;
  const worse = state.ok ? "" : bad ? `${bad} of ${state.tasks.length} tasks are unwell: ` : "not well: ";
  at("whole").textContent = `${worse}${state.words || "not known"}, ${clock(state.at_s)}`;
  at("whole").className = !state.ok ? "wrong" : state.unwell.length ? "paused" : "well";
  for (const page of PAGES) if (page.show && !at(page.name).hidden) page.show(state, picture);
}

function go(name, filter) {
  const page = PAGES.find((one) => one.name === name) || PAGES[0];
  if (filter !== undefined) at("search").value = filter;
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== page.name;
  for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === page.name));
  keep(page.name);
  if (page.opened) page.opened();
  if (state) show();
}

// The page and its filter stay across a reload.
function keep(name) {
  history.replaceState({ filter: at("search").value }, "", `#${name}`);
}

for (const page of PAGES) {
  const button = make("button", page.title, { type: "button", "data-view": page.name });
  button.addEventListener("click", () => go(page.name));
  at("pages").append(button);
  const section = make("section", undefined, { id: page.name, "aria-label": page.title });
  section.append(...page.begin({ go }));
  document.querySelector("main").append(section);
}
at("search").addEventListener("input", () => {
  keep(location.hash.slice(1));
  if (state) show();
});
go(location.hash.slice(1), history.state ? history.state.filter : undefined);
look();
