// What changes something: a question with a dry run, a confirmation, and the job that runs, which all pages show.

import { ask, at, make, number, put, send } from "./dom.js";

const QUICK_MS = 400;
let job = { number: 0, state: "none" }, polling = false, refusal = "";
const waiting = new Map(); // By number of a job: what to do at its end.
const LOST = { lines: [], more: {}, why: "Another page has begun something else since, so this page does not know what came of it. Ask again." };

export function verb(text, label, open) {
  const button = make("button", text, { type: "button", class: "verb", "aria-label": label });
  button.addEventListener("click", open);
  return button;
}

// The newest job; called at each look, so that a job of another page is shown, too.
export async function lookAtJob() {
  const found = await ask("api/job");
  refusal = found.refusal;
  document.body.classList.toggle("read-only", Boolean(refusal));
  at("refusal").textContent = refusal;
  job = found;
  showJob();
  if (job.state === "running") pollSoon();
  for (const [mine, then] of [...waiting]) {
    if (mine > job.number || (mine === job.number && job.state === "running")) continue;
    waiting.delete(mine);
    then(mine === job.number ? job : LOST);
  }
}

function pollSoon() {
  if (polling) return;
  polling = true;
  setTimeout(async () => {
    polling = false;
    try {
      await lookAtJob();
    } catch (error) {
      pollSoon(); // The frame tells that the program does not answer.
    }
  }, QUICK_MS);
}

function showJob() {
  const shown = job.state !== "none" && !job.more.dry && !(job.state === "running" && at("dialog").open);
  at("job").hidden = !shown;
  if (!shown) return;
  const running = job.state === "running";
  const end = { running: "runs", done: "is done", failed: "is not done" }[job.state];
  const told = `${job.what} ${end}${running && job.step ? `: ${job.step}` : ""}. Asked by ${job.who}.`;
  if (at("job-told").textContent !== told) at("job-told").textContent = told;
  at("job-told").className = job.state === "failed" ? "text wrong" : "text";
  at("job-bar").hidden = !running;
  showBar(at("job-bar"), job);
  at("job-end").hidden = !running;
  const text = [...job.lines, job.why].filter(Boolean).join("\n");
  if (at("job-lines").textContent !== text) at("job-lines").textContent = text;
}

function showBar(bar, seen) {
  if (seen.total) {
    bar.max = seen.total;
    bar.value = seen.done;
    bar.title = `${number(seen.done)} of ${number(seen.total)}`;
  } else {
    bar.removeAttribute("value");
  }
}

// Begin a job; `then` gets it when it has ended, and `started` its number.
async function begin(name, given, then, started) {
  const begun = await send(`api/do/${name}`, given);
  if (started) started(begun.number);
  if (then) waiting.set(begun.number, then);
  await lookAtJob();
}

// Ask before something is done. `dry`: first have the program say what would happen, as the command does.
export function confirmed({ title, name, given, text, button, dry, then }) {
  const [lines, bar] = [make("pre", text, { class: "text", tabindex: "0" }), make("progress")];
  const [yes, no] = [make("button", button, { type: "button" }), make("button", "Cancel", { type: "button" })];
  const dialog = at("dialog");
  let closed = false, reading = false, mine = 0, sure = given;
  // Its page does not want the answer any longer. Only this job is ended: another page may have begun one since.
  const giveUp = () => { if (closed && reading && mine) send("api/do/end-wait", { job: mine }).catch(() => {}); };
  bar.setAttribute("aria-label", "reading what would happen");
  bar.hidden = true;
  no.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    closed = true;
    giveUp();
  }, { once: true });
  yes.addEventListener("click", async () => {
    yes.disabled = true;
    try {
      dialog.close();
      await begin(name, sure, then);
    } catch (error) {
      failed(title, error.message);
    }
  });
  dialog.replaceChildren(make("h2", title, { id: "asked" }), lines, bar, put(make("p"), yes, " ", no));
  dialog.showModal();
  no.focus();
  if (dry) look();

  async function look() {
    reading = true;
    yes.disabled = true;
    bar.hidden = false;
    lines.textContent = "Reading what would happen.";
    try {
      await begin(name, { ...given, yes: false }, (found) => {
        reading = false;
        if (closed) return;
        bar.hidden = true;
        lines.textContent = [...found.lines, found.why].filter(Boolean).join("\n");
        if (!found.more.asked) return;
        yes.textContent = `${button} ${number(found.more.asked)}`;
        sure = { ...given, yes: true, ...(given.place ? {} : { counted: found.more.counted }) };
        yes.disabled = false;
      }, (begun) => {
        mine = begun;
        giveUp();
      });
    } catch (error) {
      reading = false;
      bar.hidden = true;
      lines.textContent = error.message;
    }
  }
}

function failed(title, why) {
  at("job").hidden = false;
  at("job-told").textContent = `${title}: ${why}`;
  at("job-told").className = "text wrong";
}

at("job-end").addEventListener("click", () => send("api/do/end-wait", { job: job.number }).catch((error) => failed("end the wait", error.message)));
