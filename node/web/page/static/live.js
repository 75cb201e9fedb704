// Keeps the list of torrents and the totals current with the server's stream of events.
//
// The stream is opened again whenever it ends, later and later while the server does not answer. After half a minute
// in the background it is closed: a browser has few connections to one server, and a forgotten tab should hold none.

import { get, Refused } from "./api.js";

const HIDDEN_LIMIT = 30_000;
const LONGEST_WAIT = 30_000;

/**
 * live dispatches events whose detail is the server's object: totals, decision, log, settings and policy. Others are
 * torrents (some have changed), snapshot (all is new: earlier events may have been missed), and state, whose detail
 * is connecting, open or lost.
 */
export const live = new (class extends EventTarget {
  torrents = new Map(); // info hash -> Torrent
  totals = null; // before the first snapshot
  state = "connecting";
  #source = null;
  #retry = 0;
  #failures = 0;
  #hiding = 0;

  constructor() {
    super();
    document.addEventListener("visibilitychange", () => {
      this.#hide();
      if (!document.hidden && !this.#source && this.started) this.start();
    });
    // A page that is kept for the browser's way back would keep its connection, too.
    addEventListener("pagehide", () => this.stop());
    addEventListener("pageshow", (e) => e.persisted && this.started && this.start());
  }

  /** start opens the stream. */
  start() {
    this.stop();
    this.started = true;
    const source = (this.#source = new EventSource("api/v1/events"));
    source.onopen = () => {
      this.#failures = 0;
      this.#become("open");
    };
    source.onerror = () => this.#lost();
    const on = (name, handle) => source.addEventListener(name, (e) => handle(JSON.parse(e.data)));
    on("snapshot", (s) => {
      this.torrents = new Map(s.torrents.map((t) => [t.info_hash, t]));
      this.#tell("snapshot");
      this.#tell("torrents");
      this.#total(s.totals);
    });
    on("torrents", (c) => {
      for (const t of c.changed) this.torrents.set(t.info_hash, t);
      for (const hash of c.removed) this.torrents.delete(hash);
      this.#tell("torrents");
    });
    on("totals", (t) => this.#total(t));
    for (const name of ["decision", "log", "settings", "policy"]) on(name, (detail) => this.#tell(name, detail));
    this.#hide(); // the page may have been opened in the background
  }

  /** #hide closes the stream in a while if nobody sees the page. */
  #hide() {
    clearTimeout(this.#hiding);
    if (document.hidden) this.#hiding = setTimeout(() => this.stop(), HIDDEN_LIMIT);
  }

  /** stop closes the stream. What was learned stays. */
  stop() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  /** end is stop for good, until start is called. What was learned is forgotten. */
  end() {
    this.started = false;
    this.stop();
    this.torrents.clear();
    this.totals = null;
  }

  async #lost() {
    // A browser opens a stream that has ended again by itself, but not one that was refused.
    if (this.#source?.readyState === EventSource.CONNECTING) return this.#become("lost");
    this.stop();
    this.#become("lost");
    const pause = Math.min(LONGEST_WAIT, 1000 * 2 ** this.#failures++);
    this.#retry = setTimeout(async () => {
      // The stream does not say why it was refused. A request does, and shows the login if that is needed.
      await get("session").then(() => this.started && this.start(), (err) => err instanceof Refused || this.#lost());
    }, pause);
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.#tell("state", state);
  }

  #total(totals) {
    this.totals = totals;
    this.#tell("totals", totals);
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
})();
