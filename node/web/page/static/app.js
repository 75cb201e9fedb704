// The page: shows one view at a time, by the part of its address behind #, and asks for the password if it is needed.

import { access, get, login, logout, Refused } from "./api.js";
import { el, icon, setAttr, setText, visible } from "./dom.js";
import { acceptDrops } from "./add.js";
import { rate } from "./format.js";
import { live } from "./live.js";
import { mapView } from "./map.js";
import { sayError } from "./messages.js";
import { settingsView } from "./settings.js";
import { torrentView } from "./torrent.js";
import { torrentsView } from "./torrents.js";

const main = document.getElementById("main");
let leaving = new AbortController(); // ends what the current view has begun
let current = "";
const out = el("button", { type: "button", class: "quiet", text: "Log out", on: { click: () => logout().then(showLogin, sayError) } });

/** viewOf chooses a view by the address: #/, #/torrent/HASH/TAB, #/map or #/settings. */
function viewOf(address) {
  const torrent = /^#\/torrent\/([0-9a-f]{40})(?:\/(\w+))?$/.exec(address);
  if (torrent) return { name: address, make: (signal) => torrentView(signal, torrent[1], torrent[2] ?? "paths") };
  if (address === "#/map") return { name: address, make: mapView };
  if (address === "#/settings") return { name: address, make: settingsView };
  return { name: "#/", make: torrentsView };
}

function show() {
  const view = viewOf(location.hash);
  if (view.name === current) return;
  const first = current === "";
  current = view.name;
  leaving.abort();
  leaving = new AbortController();
  const { root, title } = view.make(leaving.signal);
  main.replaceChildren(root);
  const tab = root.querySelector(".tabs [aria-current]"); // on a phone it may be beyond the edge
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft + tab.offsetWidth - tab.parentElement.clientWidth;
  const showTitle = () => (document.title = visible(`${title()} – braid`));
  live.addEventListener("torrents", showTitle, { signal: leaving.signal }); // a name may come later
  showTitle();
  for (const link of document.querySelectorAll("header nav a")) {
    const here = link.getAttribute("href") === current || (link.hash === "#/" && current.startsWith("#/torrent/"));
    setAttr(link, "aria-current", here ? "page" : null);
  }
  // A screen reader goes on at the new view. The first one is read from the top of the page.
  if (!first) main.focus({ preventScroll: true });
}

/** showLogin replaces the page by the form for the password. */
function showLogin() {
  if (current === "login") return;
  current = "login";
  leaving.abort();
  live.end();
  document.querySelector("dialog")?.close(); // it would keep the focus
  const password = el("input", { type: "password", autocomplete: "current-password", required: true });
  const wrong = el("p", { class: "wrong", role: "alert" });
  const form = el("form", { class: "login" },
    el("h1", { text: "Log in to braid" }), el("label", {}, "Password", password), wrong, el("button", { class: "main", text: "Log in" }));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      await login(password.value);
      enter();
    } catch (err) {
      setText(wrong, err instanceof Refused ? "Wrong password." : err.message);
      password.select();
    }
  });
  main.replaceChildren(form);
  document.title = "Log in – braid";
  document.body.classList.add("outside");
  password.focus();
}

/** enter shows the view once the server lets us in. */
async function enter() {
  try {
    const session = await get("session");
    document.body.classList.remove("outside");
    document.querySelector(".brand").title = session.version;
    out.hidden = !session.has_password;
    live.start();
    current = "";
    show();
  } catch (err) {
    if (current === "login") return;
    sayError(err);
    setTimeout(enter, 3000);
  }
}

function showTotals() {
  const down = el("span", { class: "figure" });
  const up = el("span", { class: "figure" });
  const slow = el("span", { class: "slow", hidden: true, title: "The alternative rates apply now.", text: "alternative rates" });
  const state = el("span", { class: "connection", role: "status" });
  document.getElementById("totals").append(
    slow, el("span", { title: "Download of all torrents" }, icon("down"), down), el("span", { title: "Upload of all torrents" }, icon("up"), up), state, out);
  live.addEventListener("totals", ({ detail: t }) => {
    setText(down, rate(t.down_mbit_s));
    setText(up, rate(t.up_mbit_s));
    slow.hidden = !t.alternative;
  });
  live.addEventListener("state", ({ detail }) => {
    setText(state, detail === "lost" ? "connecting again …" : "");
    document.body.classList.toggle("lost", detail === "lost");
  });
}

access.addEventListener("refused", showLogin);
addEventListener("hashchange", () => current !== "login" && show());
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault();
  main.focus();
});
showTotals();
acceptDrops();
enter();
