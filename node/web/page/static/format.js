// Turns figures into short texts. Rates are in Mbit/s, sizes in bytes and times in seconds, as in the API.

const NONE = "–";

/** digits keeps three significant digits, so that a column stays narrow and no false precision is shown. */
function digits(x) {
  if (x >= 99.95) return String(Math.round(x));
  return x >= 9.995 ? x.toFixed(1) : x.toFixed(2);
}

export function rate(mbit) {
  if (!(mbit > 0.0005)) return NONE;
  if (mbit >= 999.5) return `${digits(mbit / 1000)} Gbit/s`;
  return mbit >= 0.9995 ? `${digits(mbit)} Mbit/s` : `${Math.round(mbit * 1000)} kbit/s`;
}

export function size(bytes) {
  if (!Number.isFinite(bytes) || bytes < 0) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; bytes >= 999.5 && i < units.length - 1; i++) bytes /= 1024;
  return `${i === 0 ? bytes : digits(bytes)} ${units[i]}`;
}

/** span is a length of time in at most two units: 14 s, 3 min 05 s, 2 h 10 min, 5 d 3 h. */
export function span(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return NONE;
  const s = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`;
  return s < 86400 * 365 ? `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h` : "more than a year";
}

export function percent(part, whole) {
  if (!(whole > 0)) return NONE;
  const p = (100 * part) / whole;
  if (p > 0 && p < 0.1) return "< 0.1 %";
  // Only what is whole is shown as 100 %. 0.29 of 1 is a little less than 29 % to a computer.
  return `${p >= 100 ? 100 : Math.min(99.9, Math.floor(p * 10 + 1e-9) / 10)} %`;
}

export function milliseconds(ms) {
  if (!(ms > 0)) return NONE;
  return ms >= 9.995 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
}

export function ratio(x) {
  return Number.isFinite(x) && x >= 0 ? x.toFixed(2) : NONE;
}

/** plural is a number with its noun: 1 path, 2 paths. */
export function plural(n, noun, many = `${noun}s`) {
  return `${n} ${n === 1 ? noun : many}`;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dateFormat = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });

/** clock is the time of day of a time in milliseconds since 1970. */
export const clock = (ms) => clockFormat.format(ms);
/** stamp is clock, after the date if that is not today's. */
export const stamp = (ms) => (new Date(ms).toDateString() === new Date().toDateString() ? clock(ms) : `${dateFormat.format(ms)} ${clock(ms)}`);
export const moment = (ms) => (Number.isFinite(ms) && ms > 0 ? dayFormat.format(ms) : NONE);
