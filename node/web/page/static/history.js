// Remembers the rate of each path over the last minutes, and the selector's decisions. Everything has a limit, since
// the page stays open for days: samples and decisions leave at the other end, and paths that are gone for long go too.

const SAMPLES = 600; // one each second
const DECISIONS = 500;
const PATHS = 400;

export class History {
  #paths = new Map(); // id -> {samples: [[time, Mbit/s]], marks: [{time, kind, reason}], name, peer, route, seen}
  #number = 0;
  #known = new Map(); // key -> decision as the server sends it
  #ahead = 0; // of the server's clock before ours, in milliseconds
  decisions = []; // newest first: {number, time, kind, reason, name, peer, route}

  /** fill replaces the samples by those of the server's History, and adds its decisions. */
  fill(h) {
    const decisions = [...(h.decisions ?? []), ...this.#known.values()]; // an event may be newer than the answer
    this.#paths.clear();
    this.#known.clear();
    this.decisions = [];
    const end = Date.parse(h.end);
    for (const p of h.paths ?? []) {
      const of = this.#of(p.id, p);
      const n = p.down_mbit_s.length;
      of.samples = p.down_mbit_s.map((down, i) => [end - (n - 1 - i) * h.step_s * 1000, down + (p.up_mbit_s[i] ?? 0)]).slice(-SAMPLES);
      of.seen = end;
    }
    for (const d of decisions.sort((a, b) => Date.parse(a.time) - Date.parse(b.time))) this.decide(d);
    this.#ahead = end - Date.now();
  }

  /** now is the time by the server's clock, from which all times here are. */
  now() {
    return Date.now() + this.#ahead;
  }

  /** add takes the current paths. */
  add(time, paths) {
    for (const p of paths) {
      const of = this.#of(p.id, p);
      of.samples.push([time, p.down_mbit_s + p.up_mbit_s]);
      if (of.samples.length > SAMPLES) of.samples.shift();
      of.seen = time;
    }
    if (this.#paths.size <= PATHS) return;
    const oldest = [...this.#paths].sort(([, a], [, b]) => a.seen - b.seen).slice(0, this.#paths.size - PATHS);
    for (const [id] of oldest) this.#paths.delete(id);
  }

  /** decide takes a decision of the server, which may come twice: in the answer, and as an event. */
  decide(d) {
    const key = [d.time, d.path_id, d.event, d.reason].join();
    if (this.#known.has(key)) return;
    this.#known.set(key, d);
    if (this.#known.size > DECISIONS) this.#known.delete(this.#known.keys().next().value);
    this.#ahead = Math.max(this.#ahead, Date.parse(d.time) - Date.now()); // h.end is in whole seconds
    const of = this.#of(d.path_id, d);
    const mark = { time: Date.parse(d.time), kind: d.event, reason: d.reason };
    of.marks.push(mark);
    if (of.marks.length > DECISIONS) of.marks.shift();
    this.decisions.unshift({ ...mark, number: this.#number++, get name() { return of.name; }, peer: d.peer, get route() { return of.route; } });
    this.decisions.length = Math.min(this.decisions.length, DECISIONS);
  }

  samples = (id) => this.#paths.get(id)?.samples ?? [];
  marks = (id) => this.#paths.get(id)?.marks ?? [];

  /** highest is the highest rate of any path since a time. */
  highest(since) {
    let most = 0;
    for (const { samples } of this.#paths.values()) {
      for (let i = samples.length - 1; i >= 0 && samples[i][0] >= since; i--) most = Math.max(most, samples[i][1]);
    }
    return most;
  }

  #of(id, p) {
    let of = this.#paths.get(id);
    if (!of) this.#paths.set(id, (of = { samples: [], marks: [], name: "", route: "", seen: 0 }));
    if (p.hops && !of.route) {
      of.route = p.hops.map((h) => `${h.ingress || ""}#${h.isd_as}#${h.egress || ""}`).join(" > ");
      // A short name for people: the first interface and the last, which mostly tell the paths of a peer apart.
      const [first, last] = [p.hops[0], p.hops.at(-1)];
      if (first) of.name = p.hops.length > 1 ? `${shortAS(first)}#${first.egress} > ${shortAS(last)}#${last.ingress}` : shortAS(first);
    }
    of.name ||= (p.fingerprint ?? "").slice(0, 8) || p.peer || id;
    return of;
  }
}

const shortAS = (hop) => hop.isd_as.split("-")[1].split(":").at(-1);
