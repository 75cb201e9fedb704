// Speaks braid's own interface, /api/v1. Every error is an Error with a sentence for people.

const BASE = "api/v1";

/** refused is dispatched on this target when the server asks for the password. */
export const access = new EventTarget();

/** Refused is the error of a request that was not allowed without logging in. */
export class Refused extends Error {}

async function call(method, path, body, signal) {
  const options = { method, signal, headers: { Accept: "application/json", "X-Requested-With": "fetch" } };
  if (body instanceof FormData) {
    options.body = body;
  } else if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Error("braid does not answer. Is the daemon running?");
  }
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  // A proxy may answer with a line of text, or with a document.
  const said = await answer.text();
  const text = said.startsWith("{") ? JSON.parse(said).error : said.startsWith("<") ? "" : said.trim();
  if (answer.status === 401) {
    access.dispatchEvent(new Event("refused"));
    throw new Refused(text || "The password is needed.");
  }
  throw new Error(text || `braid answers with status ${answer.status}.`);
}

export const get = (path, signal) => call("GET", `${BASE}/${path}`, undefined, signal);
export const post = (path, body, signal) => call("POST", `${BASE}/${path}`, body, signal);
export const put = (path, body) => call("PUT", `${BASE}/${path}`, body);
export const patch = (path, body) => call("PATCH", `${BASE}/${path}`, body);
export const remove = (path) => call("DELETE", `${BASE}/${path}`);

export const login = (password) => call("POST", `${BASE}/login`, { password });
export const logout = () => call("POST", `${BASE}/logout`);
