// Draws the page's figures: unpacks Vega, compiles each panel, and connects legends and buttons.
// Colours are the page's variables, so that a figure follows the theme without being drawn again.
(async () => {
  "use strict";
  const config = {
    background: "transparent", padding: 4, customFormatTypes: false,
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif",
    view: { stroke: null },
    axis: {
      labelColor: "var(--soft)", titleColor: "var(--soft)", labelFontSize: 12, titleFontSize: 12,
      titleFontWeight: 400, gridColor: "var(--grid)", domainColor: "var(--rule)", ticks: false,
      labelPadding: 6, titlePadding: 8, labelOverlap: "greedy", labelSeparation: 6, labelLimit: 130, labelFlush: false,
    },
    axisX: { titleAnchor: "end", titleLimit: { expr: "width" }, labelBound: true, tickCount: 5 },
    axisY: { titleAngle: 0, titleAnchor: "start", titleAlign: "left", titleY: -10, titleX: 0, titleLimit: 320, tickCount: 5 },
    title: { anchor: "start", color: "var(--ink)", fontSize: 13, fontWeight: 600, offset: 26, frame: "group" },
    line: { strokeWidth: 2, strokeJoin: "round" }, point: { strokeWidth: 1.5, opacity: 1 },
    text: { color: "var(--ink)", fontSize: 12 },
  };

  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const library = document.createElement("script");
  library.textContent = await unpacked(document.getElementById("library").textContent);
  document.head.append(library);

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const showTip = (_handler, event, _item, value) => {
    tip.hidden = !value;
    if (!value) return;
    tip.replaceChildren(...Object.entries(value).map(([name, said]) => {
      const line = document.createElement("div"), label = document.createElement("span");
      label.textContent = name;
      line.append(label, " ", String(said));
      return line;
    }));
    const { width, height } = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, document.documentElement.clientWidth - width - 4);
    const y = event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16;
    tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  };

  const draw = async (panel, place) => {
    const { columns } = panel.data, names = Object.keys(columns ?? {});
    if (columns) panel.data = {
      values: columns[names[0]].map((_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]]))),
    };
    const spec = vegaLite.compile({ ...panel, config: { ...config, ...panel.config } }).spec;
    const view = new vega.View(vega.parse(spec, null, { ast: true }), {
      expr: expressionInterpreter, renderer: "svg", container: place, hover: true, tooltip: showTip,
      logLevel: vega.Warn,
    });
    return view.runAsync();
  };

  // One step nearer or farther: what a scale shows shrinks or grows about its middle.
  const zoom = (view, axis, factor) => {
    try {
      const scale = view.scale(axis), [from, to] = scale.range();
      const middle = (from + to) / 2, half = (to - from) / 2 * factor;
      view.signal(`zoom_${axis}`, [scale.invert(middle - half), scale.invert(middle + half)]);
    } catch { /* no such scale, or none that zooms */ }
  };
  const zooms = { nearer: 2 / 3, farther: 3 / 2 };

  const saved = async (views) => {
    const colours = getComputedStyle(document.documentElement);
    let height = 0, width = 0, inner = "";
    for (const view of views) {
      const image = new DOMParser().parseFromString(await view.toSVG(), "image/svg+xml").documentElement;
      image.setAttribute("y", height);
      height += Number(image.getAttribute("height"));
      width = Math.max(width, Number(image.getAttribute("width")));
      inner += new XMLSerializer().serializeToString(image);
    }
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">` +
      `<rect width="100%" height="100%" fill="var(--paper)"/>${inner}</svg>`;
    return svg.replace(/var\((--[\w-]+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
  };

  for (const figure of document.querySelectorAll("figure")) {
    const chart = figure.querySelector(".chart");
    const panels = JSON.parse(figure.querySelector("script").textContent);
    chart.hidden = false;
    // All places first: a panel is as wide as they leave it.
    const places = panels.map(() => document.createElement("div"));
    chart.querySelector(".plot").append(...places);
    const views = [];
    for (const [at, panel] of panels.entries()) views.push(await draw(panel, places[at]));
    const entries = [...chart.querySelectorAll(".legend button")];
    for (const entry of entries) entry.addEventListener("click", () => {
      entry.ariaPressed = String(entry.ariaPressed !== "true");
      const hidden = entries.filter((each) => each.ariaPressed !== "true").map((each) => each.value);
      for (const view of views) view.signal("hidden", hidden).runAsync();
    });
    for (const button of chart.querySelectorAll(".tools button")) button.addEventListener("click", async () => {
      if (button.value === "save") {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([await saved(views)], { type: "image/svg+xml" }));
        link.download = `${figure.id}.svg`;
        link.click();
        return;
      }
      for (const view of views) {
        for (const axis of ["x", "y"]) zoom(view, axis, zooms[button.value]);
        if (button.value === "all") for (const axis of ["x", "y"]) {
          try { view.signal(`zoom_${axis}`, null); } catch { /* an axis that does not zoom */ }
        }
        view.runAsync();
      }
    });
  }
  document.documentElement.dataset.drawn = "yes";
})();
// What is folded is printed, but for the numbers of figures that are drawn.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details.fold, details.warning")) part.open = true;
});
