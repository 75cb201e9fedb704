// A list of which only the visible rows exist. Each row has a place computed from its number, so that a list of a
// thousand rows costs no more than the twenty that can be seen. Rows are recycled while the list is scrolled.
//
// To screen readers the list is a grid with the number of all rows. The focus stays on the list and names the
// current row (aria-activedescendant), since the row's own element may serve another row a moment later.

import { el, later, setAttr } from "./dom.js";

const OVERSCAN = 4; // rows above and below, so that a quick scroll shows no gap before the next frame
let lists = 0;

export class List {
  /**
   * make() returns a new row element, update(row, item, number) shows an item in it, key(item) names the item.
   * height is the height of a row in CSS pixels: on a wide window and on a narrow one. head is a row of titles that stays
   * at the top. open(item) is called for Enter or a double click, and chosen(keys) after the selection has changed. The
   * list's observer ends with the signal.
   */
  constructor(signal, { label, height, head, make, update, key, open, chosen, multiple = false }) {
    Object.assign(this, { head, make, update, key, open, chosen, multiple });
    this.height = () => height[matchMedia("(max-width: 760px)").matches ? 1 : 0];
    this.id = `list${++lists}`;
    this.items = [];
    this.selected = new Set();
    this.current = -1;
    this.anchor = null; // key of the item where a selection with Shift begins
    this.heads = head ? 1 : 0; // rows of titles, which count
    if (head) setAttr(head, "aria-rowindex", 1);
    this.rows = new Map(); // number of the item -> element
    this.free = [];
    this.inner = el("div", { class: "list-inner", role: "rowgroup" });
    this.root = el("div", {
      class: "list", role: "grid", tabindex: "0", "aria-label": label, "aria-multiselectable": multiple ? "true" : null,
      on: { keydown: (e) => this.#key(e), click: (e) => this.#click(e), dblclick: (e) => e.target.closest("input") || this.#openAt(this.#numberOf(e)) },
    }, head && el("div", { role: "rowgroup", class: "list-head" }, head), this.inner);
    this.render = later(() => this.#render());
    this.root.addEventListener("scroll", this.render, { passive: true });
    const resize = new ResizeObserver(() => this.#resized());
    resize.observe(this.root);
    signal.addEventListener("abort", () => resize.disconnect());
  }

  /** set replaces the items. The current row stays with its item; if that has gone, it is the one before. */
  set(items) {
    const at = this.items[this.current];
    const name = at && this.key(at);
    this.items = items;
    if (at && !(items[this.current] && this.key(items[this.current]) === name)) {
      const n = items.findIndex((i) => this.key(i) === name);
      this.current = n < 0 ? Math.min(this.current, items.length) - 1 : n;
    }
    if (this.selected.size > 0) {
      const there = new Set(items.map(this.key));
      const gone = [...this.selected].filter((k) => !there.has(k));
      for (const k of gone) this.selected.delete(k);
      if (gone.length > 0) this.chosen?.(this.selected);
    }
    setAttr(this.root, "aria-rowcount", items.length + this.heads);
    this.stale = true;
    this.render();
  }

  /** select replaces the selection. */
  select(keys) {
    this.selected = new Set(keys);
    this.chosen?.(this.selected);
    this.stale = true;
    this.render();
  }

  #resized() {
    this.stale = true;
    this.viewport = this.root.clientHeight;
    this.covered = this.head?.offsetHeight ?? 0; // by the titles
    for (const row of this.inner.children) row.measured = null; // where a row may keep the size of its parts
    this.render();
  }

  #render() {
    const h = this.height();
    const total = this.items.length * h;
    if (this.total !== total) this.inner.style.height = `${(this.total = total)}px`;
    const top = this.root.scrollTop;
    const first = Math.max(0, Math.floor(top / h) - OVERSCAN);
    const last = Math.min(this.items.length - 1, Math.floor((top + (this.viewport ?? 600)) / h) + OVERSCAN);
    for (const [n, row] of this.rows) {
      if (n >= first && n <= last) continue;
      this.rows.delete(n);
      this.free.push(row);
    }
    for (let n = first; n <= last; n++) {
      let row = this.rows.get(n);
      if (row && !this.stale) continue;
      if (!row) {
        row = this.free.pop() ?? this.#newRow();
        this.rows.set(n, row);
        if (n > first) this.rows.get(n - 1).after(row); // the Tab key and screen readers follow this order
        else this.inner.prepend(row);
      }
      if (row.number !== n || row.place !== n * h) {
        row.number = n;
        row.place = n * h;
        row.style.transform = `translateY(${n * h}px)`;
        row.id = `${this.id}-${n}`;
        setAttr(row, "aria-rowindex", n + 1 + this.heads);
      }
      row.hidden = false;
      const item = this.items[n];
      const selected = this.selected.has(this.key(item));
      setAttr(row, "aria-selected", this.multiple ? selected : null);
      row.classList.toggle("selected", selected);
      row.classList.toggle("current", n === this.current);
      this.update(row, item, n);
    }
    for (const row of this.free) row.hidden = true;
    this.stale = false;
    setAttr(this.root, "aria-activedescendant", this.rows.has(this.current) ? `${this.id}-${this.current}` : null);
  }

  #newRow() {
    const row = this.make();
    row.classList.add("row");
    row.setAttribute("role", "row");
    return row;
  }

  #numberOf(event) {
    return event.target.closest(".row")?.number ?? -1;
  }

  #openAt(n) {
    if (n >= 0 && this.items[n]) this.open?.(this.items[n]);
  }

  #click(event) {
    const n = this.#numberOf(event);
    if (n < 0 || event.target.closest("a, button, select, input:not([type=checkbox])")) return;
    const box = event.target.closest("input[type=checkbox]");
    this.#move(n, { extend: event.shiftKey, toggle: event.ctrlKey || event.metaKey || Boolean(box) });
    this.root.focus({ preventScroll: true }); // not the box, so that the keys work
  }

  /** #move makes a row the current one, and changes the selection as file managers do. */
  #move(n, { extend = false, toggle = false, keep = false } = {}) {
    if (this.items.length === 0) return;
    n = Math.max(0, Math.min(this.items.length - 1, n));
    this.current = n;
    const k = this.key(this.items[n]);
    let from = extend ? this.items.findIndex((i) => this.key(i) === this.anchor) : -1;
    if (from < 0) [from, this.anchor] = [n, k];
    if (this.multiple && !keep) {
      if (extend) {
        this.selected = new Set(this.items.slice(Math.min(from, n), Math.max(from, n) + 1).map(this.key));
      } else if (toggle) {
        if (!this.selected.delete(k)) this.selected.add(k);
      } else {
        this.selected = new Set([k]);
      }
      this.chosen?.(this.selected);
    }
    this.stale = true;
    this.render();
  }

  #key(event) {
    if (event.target !== this.root) return;
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.height()) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      this.#move(this.current + steps[event.key], { extend: event.shiftKey, keep: event.ctrlKey });
      this.reveal(this.current);
    } else if (event.key === " " && this.multiple) {
      this.#move(Math.max(0, this.current), { toggle: true });
    } else if (event.key === "a" && (event.ctrlKey || event.metaKey) && this.multiple) {
      this.select(this.items.map(this.key));
    } else if (event.key === "Escape" && this.selected.size > 0) {
      this.select([]);
    } else if (event.key === "Enter") {
      this.#openAt(this.current);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** reveal scrolls as little as makes the row visible. */
  reveal(n) {
    const h = this.height();
    const view = this.root.clientHeight - (this.covered ?? 0);
    if (n * h < this.root.scrollTop) this.root.scrollTop = n * h;
    else if ((n + 1) * h > this.root.scrollTop + view) this.root.scrollTop = (n + 1) * h - view;
  }
}
