// Draws the flame graph: the callers above, what they call below, as wide as their bytes.
// Refuses to load anything. Boxes that would be thinner than two pixels are left out.
(() => {
  "use strict";
  const [PARENT, NAME, PLACE, MODULE, BYTES, LOW, HIGH, OBJECTS, SAMPLES] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const { nodes, texts } = JSON.parse(document.getElementById("data").textContent);
  const graph = document.getElementById("graph");
  const detail = document.getElementById("detail");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const out = document.getElementById("out");
  const TINTS = 6, LEAST_PIXELS = 2, LEAST_LABEL = 34;
  const children = nodes.map(() => []);
  nodes.forEach((node, at) => { if (node[PARENT] >= 0) children[node[PARENT]].push(at); });
  const total = nodes[0][BYTES] || 1;
  let focus = 0, current = 0, matches = null;

  // The modules with the most bytes of their own have a tint each, in this order; others the last.
  const own = new Map();
  nodes.forEach((node, at) => {
    const inner = children[at].reduce((sum, child) => sum + nodes[child][BYTES], 0);
    own.set(node[MODULE], (own.get(node[MODULE]) || 0) + node[BYTES] - inner);
  });
  const tints = new Map([...own].filter(([module]) => texts[module])
    .sort((one, other) => other[1] - one[1]).map(([module], at) => [module, Math.min(at, TINTS - 1)]));

  const digits = (x) => x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2);
  const bytes = (x) => {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (x >= size * 0.9995) return `${digits(x / size)} ${unit}`;
    return `${Math.round(x)} B`;
  };
  const share = (x) => `${(100 * x / total).toFixed(x >= total / 10 ? 0 : x >= total / 1000 ? 1 : 2)} %`;
  const told = (node) => `${bytes(node[BYTES])}, ${share(node[BYTES])} of all; between ` +
    `${bytes(node[LOW])} and ${bytes(node[HIGH])} (95 %); ${node[OBJECTS].toLocaleString("en")} ` +
    `objects, ${node[SAMPLES].toLocaleString("en")} sample${node[SAMPLES] === 1 ? "" : "s"}`;
  const where = (node) => [texts[node[PLACE]], texts[node[MODULE]]].filter(Boolean).join(" in ");

  const path = (at) => { const all = []; for (; at >= 0; at = nodes[at][PARENT]) all.unshift(at); return all; };
  const boxes = new Map();

  const describe = (at) => {
    const node = nodes[at];
    detail.replaceChildren();
    const name = document.createElement("strong");
    name.textContent = texts[node[NAME]];
    const place = document.createElement("span");
    place.textContent = where(node);
    const numbers = document.createElement("span");
    numbers.textContent = told(node);
    detail.append(name, place, numbers);
  };

  const box = (at, depth, left, width, above) => {
    const node = nodes[at], element = document.createElement("div");
    element.className = `box-${tints.get(node[MODULE]) ?? TINTS - 1}` + (above ? " above" : "") +
      (matches && matches.has(at) ? " match" : "");
    element.style.left = `${100 * left}%`;
    element.style.width = `${100 * width}%`;
    element.style.top = `calc(${depth} * var(--row))`;
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", depth + 1);
    element.setAttribute("aria-selected", at === current);
    element.setAttribute("aria-label", `${texts[node[NAME]]}: ${told(node)}`);
    element.tabIndex = at === current ? 0 : -1;
    element.dataset.at = at;
    if (width * graph.clientWidth >= LEAST_LABEL) element.textContent = texts[node[NAME]];
    boxes.set(at, element);
    return element;
  };

  const draw = () => {
    const hadFocus = graph.contains(document.activeElement);
    boxes.clear();
    const above = path(focus).slice(0, -1), drawn = above.map((at, depth) => box(at, depth, 0, 1, true));
    const least = LEAST_PIXELS / Math.max(1, graph.clientWidth);
    let deepest = above.length;
    const place = (at, depth, left, width) => {
      if (width < least) return;
      drawn.push(box(at, depth, left, width, false));
      deepest = Math.max(deepest, depth);
      let next = left;
      for (const child of children[at]) {
        const part = width * nodes[child][BYTES] / (nodes[at][BYTES] || 1);
        place(child, depth + 1, next, part);
        next += part;
      }
    };
    place(focus, above.length, 0, 1);
    graph.style.height = `calc(${deepest + 1} * var(--row))`;
    graph.replaceChildren(...drawn);
    out.disabled = focus === 0;
    if (!boxes.has(current)) go(focus, hadFocus);
    else if (hadFocus) boxes.get(current).focus();
  };

  const go = (at, take = true) => {
    if (at === undefined || !boxes.has(at)) return;
    const before = boxes.get(current);
    if (before) { before.tabIndex = -1; before.setAttribute("aria-selected", "false"); }
    current = at;
    const element = boxes.get(at);
    element.tabIndex = 0;
    element.setAttribute("aria-selected", "true");
    if (take) element.focus({ preventScroll: false });
    describe(at);
  };

  const zoom = (at, take = true) => { focus = at; draw(); go(at, take); };
  const at = (event) => { const e = event.target.closest("[data-at]"); return e ? Number(e.dataset.at) : undefined; };

  graph.addEventListener("click", (event) => { const one = at(event); if (one !== undefined) zoom(one); });
  graph.addEventListener("mouseover", (event) => { const one = at(event); if (one !== undefined) describe(one); });
  graph.addEventListener("mouseleave", () => describe(current));
  graph.addEventListener("keydown", (event) => {
    const siblings = (children[nodes[current][PARENT]] || [current]).filter((one) => boxes.has(one));
    const place = siblings.indexOf(current);
    const moves = {
      ArrowDown: () => go(children[current].find((one) => boxes.has(one))),
      ArrowUp: () => go(nodes[current][PARENT]),
      ArrowLeft: () => go(siblings[place - 1]),
      ArrowRight: () => go(siblings[place + 1]),
      Enter: () => zoom(current),
      " ": () => zoom(current),
      Escape: () => zoom(0),
      Home: () => go(0),
    };
    if (!moves[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  });
  out.addEventListener("click", () => zoom(0, false));

  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    matches = wanted ? new Set() : null;
    let sum = 0;
    const inside = nodes.map(() => false);
    nodes.forEach((node, one) => {
      const under = node[PARENT] >= 0 && inside[node[PARENT]];
      inside[one] = under;
      if (!wanted || !`${texts[node[NAME]]} ${texts[node[PLACE]]}`.toLowerCase().includes(wanted)) return;
      matches.add(one);
      inside[one] = true;
      if (!under) sum += node[BYTES];
    });
    found.textContent = wanted ? `${bytes(sum)}, ${share(sum)}, in stacks with it` : "";
    draw();
  });

  let width = 0;
  new ResizeObserver(() => {
    if (graph.clientWidth !== width) { width = graph.clientWidth; draw(); }
  }).observe(graph);
  document.getElementById("tools").hidden = false;
  draw();
  describe(0);
})();
