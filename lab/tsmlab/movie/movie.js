// Plays a movie of heaps: the page's data is one JSON text, its columns are deflated (page.py).
"use strict";
(async () => {
const byId = (id) => document.getElementById(id);
const movie = JSON.parse(byId("movie").textContent);
const PAGE = 4096, CELL = 2; // bytes; CSS pixels of a cell, which is a pixel of the canvas

// --- data ------------------------------------------------------------------------------------------

async function column({ width, count, data }) {
  const text = atob(data);
  const deflated = Uint8Array.from({ length: text.length }, (_, i) => text.charCodeAt(i));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const values = width > 4 ? new Float64Array(count) : new Uint32Array(count);
  for (let plane = width - 1; plane >= 0; plane--) {
    for (let i = 0, at = plane * count; i < count; i++, at++) values[i] = values[i] * 256 + bytes[at];
  }
  return values;
}

function summed(values) {
  for (let i = 1; i < values.length; i++) values[i] += values[i - 1];
  return values;
}

const columns = await Promise.all(["born", "life", "size", "thread"].map((n) => column(movie.blocks[n])));
const [born, life, size, thread] = columns;
summed(born);
const blocks = born.length;
// Of each entry of the log: block + 1 where one begins, -(block + 1) where one ends.
const events = new Int32Array(movie.entries + 1);
for (let b = 0; b < blocks; b++) {
  events[born[b]] = b + 1;
  if (born[b] + life[b] < movie.entries) events[born[b] + life[b]] = -(b + 1);
}

function places(heap, coded) {
  const found = new Float64Array(blocks), last = new Map();
  for (let b = 0; b < blocks; b++) {
    const delta = coded[b] % 2 ? -(coded[b] + 1) / 2 : coded[b] / 2;
    found[b] = (last.get(size[b]) ?? 0) + delta;
    last.set(size[b], found[b]);
    found[b] *= heap.unit;
  }
  return found;
}

// Sets of pages are arrays of bounds: begin, end, begin, ... ascending.
function combined(a, b, isIn) { // isIn(in a, in b)
  const bounds = [];
  for (let i = 0, j = 0, was = false; i < a.length || j < b.length;) {
    const at = Math.min(a[i] ?? Infinity, b[j] ?? Infinity);
    if (a[i] === at) i++;
    if (b[j] === at) j++;
    const is = isIn(i % 2 === 1, j % 2 === 1);
    if (is !== was) bounds.push(at);
    was = is;
  }
  return Uint32Array.from(bounds);
}

async function load(heap) {
  const [place, counts, toggled] = await Promise.all(
    [heap.place, heap.frames.counts, heap.frames.pages].map(column));
  heap.at = places(heap, place);
  heap.resident = [];
  heap.ever = []; // resident at this frame or one before
  let from = 0, now = new Uint32Array(), ever = now;
  for (const count of counts) {
    const toggle = summed(Uint32Array.from(toggled.subarray(from, from += count)));
    if (count) {
      now = combined(now, toggle, (a, b) => a !== b);
      ever = combined(ever, now, (a, b) => a || b);
    }
    heap.resident.push(now);
    heap.ever.push(ever);
  }
  let offset = 0;
  heap.starts = heap.regions.map(([begin, end]) => [offset, begin, (offset += end - begin + PAGE)]);
  heap.span = offset;
}
await Promise.all(movie.heaps.map(load));

function address(heap, offset) {
  for (const [from, begin, to] of heap.starts) {
    if (offset < to - PAGE) return "0x" + (begin + Math.max(0, offset - from)).toString(16);
  }
  return "0x" + movie.end.toString(16);
}

// --- state -----------------------------------------------------------------------------------------

let now = 0;            // entries that have happened
let live = 0;           // bytes
let playing = false, colour = "age", scale = 1; // bytes of a cell
const alive = new Uint8Array(blocks);

class View { // a heap's cells; each lists the blocks that begin in it, the youngest first
  constructor(heap) {
    this.heap = heap;
    this.from = 0;
    this.cursor = -1;
    this.next = new Int32Array(blocks);
    this.before = new Int32Array(blocks); // -1 - cell for the first of a cell
    const box = document.createElement("section");
    box.innerHTML = `<h2></h2><canvas class="map" tabindex="0" role="img"></canvas>
      <p class="figures"></p><canvas class="curve" role="img"></canvas>`;
    box.querySelector("h2").textContent = heap.name;
    [this.map, this.curve] = box.querySelectorAll("canvas");
    this.map.setAttribute("aria-label", `Address space of ${heap.name}`);
    this.curve.setAttribute("aria-label", `Live, resident and holes of ${heap.name} over time`);
    this.figures = box.querySelector("p");
    byId("heaps").append(box);
  }

  resize() {
    this.columns = Math.max(8, Math.floor(this.map.clientWidth / CELL));
    this.rows = Math.max(8, Math.floor(this.map.clientHeight / CELL));
    this.cells = this.columns * this.rows;
    this.map.width = this.columns;
    this.map.height = this.rows;
    this.picture = new ImageData(this.columns, this.rows);
    this.pixels = new Uint32Array(this.picture.data.buffer);
    this.used = new Float32Array(this.cells); // bytes of live blocks
    this.there = new Float32Array(this.cells); // resident bytes
    this.was = new Float32Array(this.cells); // bytes resident now or before
    this.first = new Int32Array(this.cells); // the list
    this.through = new Int32Array(this.cells); // the block that reaches in from before
  }

  rebuild() {
    const most = Math.max(0, Math.ceil(this.heap.span / scale / this.columns) - this.rows);
    const row = scale * this.columns;
    this.from = Math.min(Math.max(0, Math.round(this.from / row)), most) * row;
    this.used.fill(0);
    this.first.fill(-1);
    this.through.fill(-1);
    for (let b = 0; b < blocks; b++) if (alive[b]) this.add(b);
    this.frame = -1;
  }

  add(b) { this.change(b, 1); }
  remove(b) { this.change(b, -1); }

  change(b, sign) {
    const begin = (this.heap.at[b] - this.from) / scale, end = begin + size[b] / scale;
    if (end <= 0 || begin >= this.cells) return;
    let cell = Math.floor(begin);
    const last = Math.min(this.cells, Math.ceil(end));
    if (cell >= 0) {
      this.used[cell] += sign * scale * (Math.min(cell + 1, end) - begin);
      sign > 0 ? this.link(b, cell) : this.unlink(b);
    } else cell = -1;
    for (cell++; cell < last; cell++) {
      this.used[cell] += sign * scale * (Math.min(cell + 1, end) - Math.max(cell, begin));
      if (sign > 0) this.through[cell] = b;
      else if (this.through[cell] === b) this.through[cell] = -1;
    }
  }

  link(b, cell) {
    const old = this.first[cell];
    if (old >= 0) this.before[old] = b;
    this.next[b] = old;
    this.before[b] = -1 - cell;
    this.first[cell] = b;
  }

  unlink(b) {
    const next = this.next[b], before = this.before[b];
    if (before < 0) this.first[-1 - before] = next; else this.next[before] = next;
    if (next >= 0) this.before[next] = before;
  }

  spread(bounds, cells) { // bytes of pages over cells
    cells.fill(0);
    for (let i = 0; i < bounds.length; i += 2) {
      const begin = Math.max(0, (bounds[i] * PAGE - this.from) / scale);
      const end = Math.min(this.cells, (bounds[i + 1] * PAGE - this.from) / scale);
      for (let cell = Math.floor(begin); cell < end; cell++) {
        cells[cell] += scale * (Math.min(cell + 1, end) - Math.max(cell, begin));
      }
    }
  }

  draw() {
    const frame = frameAt(this.heap, now);
    if (frame !== this.frame) {
      this.frame = frame;
      this.spread(this.heap.resident[frame], this.there);
      this.spread(this.heap.ever[frame], this.was);
    }
    const { used, there, was, first, through, pixels } = this;
    const { never, away, hole } = ink;
    for (let cell = 0; cell < this.cells; cell++) {
      const ground = there[cell] > 0
        ? mixed(was[cell] > there[cell] ? away : never, hole, 0.25 + 0.75 * there[cell] / scale)
        : was[cell] > 0 ? away : never;
      const block = first[cell] >= 0 ? first[cell] : through[cell];
      pixels[cell] = block < 0 ? ground
        : mixed(ground, colourOf(block), 0.4 + 0.6 * Math.min(1, used[cell] / scale));
    }
    if (this.cursor >= 0 && document.activeElement === this.map) pixels[this.cursor] = ink.ink;
    this.map.getContext("2d").putImageData(this.picture, 0, 0);
    const { resident, holes } = this.heap.curves;
    this.figures.textContent = `live ${bytes(live)} · resident ${bytes(resident[frame])} · ` +
      `holes ${bytes(holes[frame])} (${resident[frame] ? Math.round(100 * holes[frame] / resident[frame]) : 0}%)`;
    this.mark();
  }

  plot() { // the curves, once; mark() adds the moment
    const ratio = devicePixelRatio, { heap, curve } = this;
    const width = curve.width = curve.clientWidth * ratio, height = curve.height = curve.clientHeight * ratio;
    const pen = (this.plotted = new OffscreenCanvas(width, height)).getContext("2d");
    pen.lineWidth = 1.5 * ratio;
    for (const [name, dash, shade] of LINES) {
      pen.strokeStyle = css(shade);
      pen.setLineDash(dash.map((d) => d * ratio));
      pen.beginPath();
      heap.frames.entries.forEach((entry, i) => pen.lineTo(
        entry / movie.entries * width, height - 1 - heap.curves[name][i] / highest * (height - 3)));
      pen.stroke();
    }
    pen.setLineDash([1, 3]);
    pen.strokeStyle = css("--soft");
    pen.strokeRect(Math.min(width - 1, movie.end / movie.entries * width), 0, 0, height);
  }

  mark() {
    const pen = this.curve.getContext("2d"), { width, height } = this.curve;
    pen.clearRect(0, 0, width, height);
    pen.drawImage(this.plotted, 0, 0);
    pen.fillStyle = css("--ink");
    pen.fillRect(now / movie.entries * (width - 2), 0, 2, height);
  }

  about(cell) {
    const { heap } = this, offset = this.from + cell * scale, found = [];
    for (let b = this.first[cell]; b >= 0; b = this.next[b]) found.push(b);
    if (this.through[cell] >= 0) found.push(this.through[cell]);
    const where = `${heap.name}, ${address(heap, offset)}: `;
    if (!found.length) {
      const state = this.there[cell] > 0 ? "a hole: resident, in no block"
        : this.was[cell] > 0 ? "purged: resident earlier" : "never resident so far";
      return where + (offset < heap.span ? state : "beyond the heap");
    }
    const b = found[0], ends = born[b] + life[b];
    const more = found.length > 1 ? ` (and ${found.length - 1} more here)` : "";
    return `${where}block of ${number(size[b])} bytes at ${address(heap, heap.at[b])}, thread ${thread[b]}, ` +
      `age ${number(now - born[b])} events (event ${number(born[b])} to ` +
      `${ends < movie.end ? number(ends) : "the end"})${more}` +
      (this.there[cell] > 0 ? "" : "; its page was not resident at the last sample");
  }
}

function frameAt(heap, entry) {
  const { entries } = heap.frames;
  let low = 0, high = entries.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    entries[middle] <= entry ? low = middle : high = middle;
  }
  return low;
}

function seek(entry) {
  const wanted = Math.min(movie.entries, Math.max(0, Math.round(entry)));
  const rebuilds = Math.abs(wanted - now) > blocks / 4 + 1000; // cheaper than to step each view
  const step = (event, isOn) => {
    if (!event) return;
    const b = Math.abs(event) - 1, begins = (event > 0) === isOn;
    alive[b] = begins ? 1 : 0;
    live += begins ? size[b] : -size[b];
    if (!rebuilds) for (const view of views) begins ? view.add(b) : view.remove(b);
  };
  while (now < wanted) step(events[now++], true);
  while (now > wanted) step(events[--now], false);
  if (rebuilds) for (const view of views) view.rebuild();
  isStale = true;
}

// --- colours ---------------------------------------------------------------------------------------

const LINES = [["live", [], "--live"], ["resident", [], "--ink"], ["holes", [5, 3], "--hole"]];
// Blues against orange holes, and hues that readers with any colour vision tell apart.
const STEPS = { light: ["#9fd0ee", "#08306b"], dark: ["#d8f0ff", "#2b6cb0"] };
const THREADS = ["#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#8c6d5a", "#7a7aff"];
const dark = matchMedia("(prefers-color-scheme: dark)");
let ink = {}, ramp = [], ofThread = [], styles;

const css = (name) => styles.getPropertyValue(name).trim();
function pixel(hex) { // as in the canvas, on a little-endian machine
  const full = hex.length === 4 ? hex.replace(/[^#]/g, "$&$&") : hex;
  const rgb = parseInt(full.slice(1), 16);
  return (0xff000000 | (rgb & 0xff) << 16 | (rgb & 0xff00) | rgb >> 16) >>> 0;
}
function mixed(a, b, share) {
  const part = (shift) => {
    const from = a >> shift & 255;
    return (from + ((b >> shift & 255) - from) * share) << shift;
  };
  return 0xff000000 | part(16) | part(8) & 0xff00 | part(0) & 0xff;
}
function readColours() {
  styles = getComputedStyle(document.documentElement);
  for (const name of ["never", "away", "hole", "ink"]) ink[name] = pixel(css("--" + name));
  const [few, many] = STEPS[dark.matches ? "dark" : "light"].map(pixel);
  ramp = Array.from({ length: 32 }, (_, i) => mixed(few, many, i / 31));
  ofThread = THREADS.map(pixel);
  const bar = `linear-gradient(90deg, ${STEPS[dark.matches ? "dark" : "light"]})`;
  const square = (paint, text) => `<span><i style="background:${paint}"></i>${text}</span>`;
  byId("legend").innerHTML = (colour === "thread"
    ? THREADS.map((paint, i) => square(paint, `thread ${i}`)).slice(0, threads).join("")
    : square(bar, colour === "age" ? "block, young to old" : "block, small to large")) +
    square("var(--hole)", "hole: resident, in no block (mixed: both in one cell)") + square("var(--away)", "purged") +
    square("var(--never)", "never resident") + LINES.map(([name, dash, shade]) =>
      `<span><i class="line" style="color:var(${shade});border-top-style:${dash.length ? "dashed" : "solid"}"></i>${name}</span>`).join("");
}
let threads = 1;
for (const t of thread) if (t >= threads) threads = t + 1;
let largest = 1;
for (const s of size) if (s > largest) largest = s;
const logs = (value, most) => ramp[Math.min(31, Math.floor(31 * Math.log2(1 + value) / Math.log2(1 + most)))];
function colourOf(b) {
  if (colour === "thread") return ofThread[thread[b] % THREADS.length];
  return colour === "age" ? logs(now - born[b], movie.entries) : logs(size[b], largest);
}

// --- figures ---------------------------------------------------------------------------------------

const number = (n) => n.toLocaleString("en");
function bytes(n) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (n < 1024) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(2)} GiB`;
}
const highest = Math.max(1, ...movie.heaps.flatMap((h) => [...h.curves.resident, ...h.curves.live]));

// --- controls --------------------------------------------------------------------------------------

const views = movie.heaps.map((heap) => new View(heap));
let isStale = true, last = null, rate = 1, fullScale = 1;

function fit() { // the scale at which the widest heap fits
  const widest = Math.max(...views.map((view) => view.heap.span / view.cells));
  fullScale = Math.max(1, Math.ceil(widest / 16) * 16);
}
function layOut() {
  const wasAll = scale >= fullScale;
  for (const view of views) view.resize();
  fit();
  if (wasAll) scale = fullScale;
  for (const view of views) {
    view.rebuild();
    view.plot();
  }
  isStale = true;
}
function zoom(factor, view, cell) { // in all heaps; of one, this cell stays where it is
  const old = scale;
  scale = Math.min(fullScale, Math.max(1, Math.round(scale * factor)));
  for (const each of views) {
    const fixed = each === view ? cell : each.cells / 2;
    each.from += fixed * (old - scale);
    each.rebuild();
  }
  isStale = true;
  remember();
}
function play(is) {
  playing = is;
  if (is && now >= movie.entries) seek(0);
  last = null;
  byId("play").textContent = is ? "Pause" : "Play";
  if (!is) remember();
}
const state = () => new URLSearchParams({ t: now, c: colour, z: scale,
  ...(scale < fullScale && { f: views.map((v) => v.from).join("_") }) }).toString();
function remember() { history.replaceState(null, "", "#" + state()); }
function recall() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (["age", "size", "thread"].includes(asked.get("c"))) byId("colour").value = colour = asked.get("c");
  const wanted = Number(asked.get("z"));
  scale = wanted >= 1 ? Math.min(fullScale, Math.round(wanted)) : fullScale;
  (asked.get("f") ?? "").split("_").forEach((from, i) => { if (views[i]) views[i].from = Number(from) || 0; });
  readColours();
  for (const view of views) view.rebuild();
  seek(Number(asked.get("t") ?? movie.heaps[0].frames.entries[peak]) || 0);
}
// Without a wish the movie begins where the first heap has most resident.
const peak = movie.heaps[0].curves.resident.reduce((best, r, i, all) => (r > all[best] ? i : best), 0);

function tick(time) {
  if (playing) {
    if (last !== null) {
      credit += (time - last) / 1000 * rate;
      const whole = Math.floor(credit);
      credit -= whole;
      seek(now + whole);
      if (now >= movie.entries) play(false);
    }
    last = time;
  }
  if (isStale) {
    isStale = false;
    for (const view of views) view.draw();
    byId("time").value = now;
    byId("clock").textContent = `event ${number(now)} of ${number(movie.entries)}` +
      (now > movie.end ? ", freeing what is left" : "");
    byId("scale").textContent = `${bytes(scale)} per cell`;
    if (hovered && playing) byId("about").textContent = hovered[0].about(hovered[1]);
    shown++;
  }
  requestAnimationFrame(tick);
}
let credit = 0, shown = 0, hovered = null;

function tell(view, cell) {
  hovered = [view, Math.min(view.cells - 1, Math.max(0, cell))];
  byId("about").textContent = view.about(hovered[1]);
}
for (const view of views) {
  const cellAt = (event) => {
    const box = view.map.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / box.width * view.columns);
    const y = Math.floor((event.clientY - box.top) / box.height * view.rows);
    return Math.min(view.rows - 1, Math.max(0, y)) * view.columns + Math.min(view.columns - 1, Math.max(0, x));
  };
  let held = null;
  view.map.addEventListener("pointerdown", (event) => { held = [event.clientY, view.from]; });
  addEventListener("pointerup", () => { if (held) { held = null; remember(); } });
  view.map.addEventListener("pointermove", (event) => {
    if (held && event.buttons && scale < fullScale) {
      view.from = held[1] - Math.round((event.clientY - held[0]) / CELL) * view.columns * scale;
      view.rebuild();
      isStale = true;
    }
    tell(view, cellAt(event));
  });
  view.map.addEventListener("click", (event) => tell(view, cellAt(event)));
  view.map.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY > 0 ? 2 : 0.5, view, cellAt(event));
  }, { passive: false });
  view.map.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -view.columns, ArrowDown: view.columns };
    const pages = { PageUp: -0.5, PageDown: 0.5 };
    if (event.key in steps) {
      view.cursor = Math.min(view.cells - 1, Math.max(0, Math.max(0, view.cursor) + steps[event.key]));
      tell(view, view.cursor);
    } else if (event.key in pages) {
      view.from += pages[event.key] * view.cells * scale;
      view.rebuild();
      remember();
    } else return;
    isStale = true;
    event.preventDefault();
    event.stopPropagation();
  });
  view.map.addEventListener("focus", () => { isStale = true; });
  view.map.addEventListener("blur", () => { isStale = true; });
  view.curve.addEventListener("pointerdown", (event) => {
    const box = view.curve.getBoundingClientRect();
    seek((event.clientX - box.left) / box.width * movie.entries);
    remember();
  });
}
const zoomAtCursor = (factor) => {
  const view = views.find((v) => v.map === document.activeElement);
  zoom(factor, view, view ? Math.max(0, view.cursor) : 0);
};
const keys = {
  " ": () => play(!playing), ",": () => seek(now - 1), ".": () => seek(now + 1),
  Home: () => seek(0), End: () => seek(movie.entries),
  "+": () => zoomAtCursor(0.5), "=": () => zoomAtCursor(0.5), "-": () => zoomAtCursor(2),
  0: () => zoom(fullScale / scale),
};
addEventListener("keydown", (event) => {
  if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.tagName === "SELECT" || (event.key === " " && event.target.tagName === "BUTTON")) return;
  keys[event.key]();
  event.preventDefault();
});
for (const [id, key] of Object.entries({ play: " ", back: ",", on: ".", out: "-", in: "+", all: "0" })) {
  byId(id).addEventListener("click", () => keys[key]());
}
for (const seconds of [240, 60, 20, 5]) {
  const option = new Option(`whole in ${seconds} s`, movie.entries / seconds);
  byId("speed").add(option, null);
  if (seconds === 20) option.selected = true;
}
for (const each of [1, 10, 100]) byId("speed").add(new Option(`${each}/s`, each), null);
rate = movie.entries / 20;
byId("speed").addEventListener("change", (event) => { rate = Number(event.target.value); });
byId("colour").addEventListener("change", (event) => {
  colour = event.target.value;
  readColours();
  isStale = true;
  remember();
});
byId("time").max = movie.entries;
byId("time").addEventListener("input", (event) => { seek(Number(event.target.value)); });
byId("time").addEventListener("change", remember);
byId("link").addEventListener("click", async () => {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    byId("about").textContent = "The link to this moment was copied to the clipboard.";
  } catch {
    byId("about").textContent = `The link to this moment: ${location.href}`;
  }
});
addEventListener("hashchange", recall);
addEventListener("resize", layOut);
dark.addEventListener("change", () => { readColours(); layOut(); });
byId("what").textContent = [
  `Trace ${movie.trace}, ${movie.schedule} order: ${number(blocks)} blocks of ${number(threads)} ` +
    `thread${threads > 1 ? "s" : ""}. Each heap's address space, row by row, without wide gaps; one scale and one clock for all.`,
  ...movie.notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`)].join(" ");
readColours();
scale = fullScale = Infinity;
layOut();
recall();
requestAnimationFrame(tick);
window.movie = { seek, play, views, movie, alive, born, life, size, get now() { return now; }, get shown() { return shown; } };
document.documentElement.dataset.ready = "1";
})();
