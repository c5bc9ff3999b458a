// How an open page comes back after a restart of the program: it signs the challenge of the new one with a key that
// it has got before, which stays in the memory of this page.

import { ask, send } from "./dom.js";

const EVERY_MS = 3600000;
let pass = null, asked = 0;

// Get a pass, and a new one from time to time; called while the program answers.
export async function keepPass() {
  if (!crypto.subtle || (pass && performance.now() - asked < EVERY_MS)) return;
  const found = await ask("api/pass");
  const bytes = Uint8Array.from(found.key.match(/../g), (two) => parseInt(two, 16));
  const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  [pass, asked] = [{ id: found.id, key }, performance.now()];
}

// Whether the program lets this page look again. A pass that it refuses is not tried again.
export async function comeBack(challenge) {
  if (!pass || !challenge) return false;
  const text = new TextEncoder().encode(`${challenge}\n${location.host}`);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", pass.key, text));
  try {
    await send("api/back", { id: pass.id, proof: [...signed].map((one) => one.toString(16).padStart(2, "0")).join("") });
  } catch (error) {
    if (error.status === 403) pass = null;
    return false;
  }
  return true;
}
