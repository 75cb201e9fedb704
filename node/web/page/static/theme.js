// The colours of the style sheet, for what is drawn on a canvas. They change with light and dark.

/** colours reads custom properties of the page: {name: "--property"} becomes {name: "#123456"}. */
export function colours(names) {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(Object.entries(names).map(([k, v]) => [k, style.getPropertyValue(v).trim()]));
}

/** onTheme calls run when light becomes dark or the other way. */
export function onTheme(signal, run) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", run, { signal });
}
