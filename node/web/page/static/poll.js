// Asks the server for the same thing again and again while a view is open.

import { get } from "./api.js";
import { sayError } from "./messages.js";

/**
 * poll calls show with the answer at once, and again the given time after each answer, until the signal is aborted.
 * While nobody sees the page nothing is asked. Of several errors in a row only the first is shown.
 */
export async function poll(signal, path, show, milliseconds = 2000) {
  let failed = false;
  while (!signal.aborted) {
    try {
      if (!document.hidden) {
        show(await get(path, signal));
        failed = false;
      }
    } catch (err) {
      if (signal.aborted) return;
      if (!failed) sayError(err);
      failed = true;
    }
    await wait(milliseconds, signal);
  }
}

/** wait also ends when the signal is aborted, or when the page comes into view again. */
function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      document.removeEventListener("visibilitychange", done);
      resolve();
    }
    signal.addEventListener("abort", done);
    document.addEventListener("visibilitychange", done);
  });
}
