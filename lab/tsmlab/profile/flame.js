// Draws the flame graph: callers above what they call, as wide as their bytes.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const graph = $("graph"), detail = $("detail"), search = $("search"), found = $("found"), out = $("out");
  const TINTS = 6, MIN_WIDTH = 0.001; // of the graph's
  const data = JSON.parse($("data").textContent);
  const nodes = data.nodes.map(([parent, name, place, module, bytes, low, high, objects, samples]) => ({
    parent, name: data.texts[name], place: data.texts[place], module: data.texts[module],
    bytes, low, high, objects, samples, children: [], box: null, isMatch: false,
  }));
  const root = nodes[0];
  for (const node of nodes) {
    node.parent = nodes[node.parent];
    if (node.parent) node.parent.children.push(node);
  }
  for (const node of nodes) node.children.sort((one, other) => other.bytes - one.bytes);
  const modules = [...new Set(nodes.map((node) => node.module))].filter(Boolean);
  const tint = (node) => Math.min((modules.indexOf(node.module) + TINTS) % TINTS, TINTS - 1);
  let focus = root, current = root;

  const digits = (x) => x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2);
  const bytes = (x) => {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (x >= size * 0.9995) return `${digits(x / size)} ${unit}`;
    return `${Math.round(x)} B`;
  };
  const share = (x) => `${(100 * x / (root.bytes || 1)).toFixed(x < root.bytes / 10 ? 1 : 0)}%`;
  const count = (x, noun) => `${x.toLocaleString("en")} ${noun}${x === 1 ? "" : "s"}`;
  const numbers = (node) => `${bytes(node.bytes)}, ${share(node.bytes)} of all; between ${bytes(node.low)} and ` +
    `${bytes(node.high)} (95%); ${count(node.objects, "object")}, ${count(node.samples, "sample")}`;

  const describe = (node) => {
    const place = [node.place, node.module].filter(Boolean).join(" in ");
    detail.replaceChildren(...[["strong", node.name], ["span", place], ["span", numbers(node)]].map(([tag, text]) =>
      Object.assign(document.createElement(tag), { textContent: text })));
  };

  const draw = () => {
    for (const node of nodes) node.box = null;
    let deepest = 0;
    const add = (node, depth, left, width, mark) => {
      const box = node.box = document.createElement("div");
      box.className = `box-${tint(node)} ${mark}${node.isMatch ? " match" : ""}`;
      box.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:calc(${depth} * var(--row))`;
      box.textContent = node.name;
      box.setAttribute("role", "treeitem");
      box.setAttribute("aria-level", depth + 1);
      box.setAttribute("aria-label", `${node.name}: ${numbers(node)}`);
      box.tabIndex = -1;
      box.node = node;
      deepest = Math.max(deepest, depth);
      graph.append(box);
    };
    const place = (node, depth, left, width) => {
      add(node, depth, left, width, "");
      for (const child of node.children) {
        const part = width * child.bytes / (node.bytes || 1);
        if (part >= MIN_WIDTH) place(child, depth + 1, left, part);
        left += part;
      }
    };
    graph.replaceChildren();
    const above = [];
    for (let node = focus.parent; node; node = node.parent) above.unshift(node);
    above.forEach((node, depth) => add(node, depth, 0, 1, "above"));
    place(focus, above.length, 0, 1);
    graph.style.height = `calc(${deepest + 1} * var(--row))`;
    out.disabled = focus === root;
    current = current.box ? current : focus;
    current.box.tabIndex = 0;
  };

  const go = (node) => {
    if (!node || !node.box) return;
    current.box.tabIndex = -1;
    current = node;
    current.box.tabIndex = 0;
    current.box.focus();
    describe(node);
  };
  const zoom = (node) => { focus = current = node; draw(); describe(node); };

  graph.addEventListener("click", (event) => { if (event.target.node) { zoom(event.target.node); go(focus); } });
  graph.addEventListener("mouseover", (event) => { if (event.target.node) describe(event.target.node); });
  graph.addEventListener("mouseleave", () => describe(current));
  graph.addEventListener("keydown", (event) => {
    const siblings = current.parent ? current.parent.children.filter((node) => node.box) : [current];
    const sibling = (step) => siblings[siblings.indexOf(current) + step];
    const moves = {
      ArrowDown: () => go(current.children[0]),
      ArrowUp: () => go(current.parent),
      ArrowLeft: () => go(sibling(-1)),
      ArrowRight: () => go(sibling(1)),
      Enter: () => { zoom(current); go(focus); },
      Escape: () => { zoom(root); go(focus); },
    };
    if (!moves[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  });
  out.addEventListener("click", () => zoom(root));
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    let sum = 0;
    for (const node of nodes) { // callers come first
      node.isMatch = wanted !== "" && `${node.name} ${node.place}`.toLowerCase().includes(wanted);
      node.isInside = Boolean(node.parent && (node.parent.isInside || node.parent.isMatch));
      if (node.isMatch && !node.isInside) sum += node.bytes;
    }
    found.textContent = wanted ? `${bytes(sum)}, ${share(sum)}, in stacks with it` : "";
    draw();
  });
  $("tools").hidden = false;
  zoom(root);
})();
