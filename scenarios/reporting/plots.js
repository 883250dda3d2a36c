"use strict";
// Draws the figures of a page with plotly.js. A figure holds its data as JSON; here they get the page's looks.

const darkness = matchMedia("(prefers-color-scheme: dark)");
const byTouch = matchMedia("(pointer: coarse)");
const HEIGHT = 320, PAPER_WIDTH = 620;  // CSS pixels; the width is that of a printed page
const NAME_WIDTH = 7;  // CSS pixels of a character of an axis's name
const BUTTONS = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]];  // none that sends data
const PANEL_HEIGHT = 210, PANEL_WIDTH = 270, MOST_PANELS = 3;  // of several in a figure; the last is for a row
const SHAPES = {circle: "circle()", diamond: "polygon(50% 0, 100% 50%, 50% 100%, 0 50%)",
  "triangle-up": "polygon(50% 0, 100% 100%, 0 100%)", "triangle-down": "polygon(50% 100%, 100% 0, 0 0)"};
const KEYS = "Arrow keys go along a line and to the next one, + and - zoom, 0 shows all.";

function looks(isPrinted) {
  const colours = isPrinted ? {ink: "#1c2430", soft: "#3c4654", paper: "#fff", grid: "#dfe3e9"} : {};
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "paper", "grid"]) colours[name] ??= style.getPropertyValue(`--${name}`).trim();
  return colours;
}

function specification(figure, isPrinted) {
  const text = figure.querySelector("script").textContent;
  if (!darkness.matches || isPrinted) return JSON.parse(text);
  const dark = JSON.parse(document.querySelector("script#dark").textContent);
  return JSON.parse(text, (key, value) => key !== "name" && Object.hasOwn(dark, value) ? dark[value] : value);
}

// Panels with the same axes, of which those at the left and at the bottom are named.
function panels(given, axis, width) {
  const names = given.panels, count = names.length;
  const rows = Math.ceil(count / Math.max(1, Math.min(MOST_PANELS, Math.floor(width / PANEL_WIDTH))));
  const columns = Math.ceil(count / rows), height = PANEL_HEIGHT * rows + 60;
  const margin = {l: 56, r: 16, t: 50, b: 44}, found = {height, margin, annotations: []};  // the buttons are at the top
  const across = 0.03, below = 34 / (height - margin.t - margin.b), last = (rows - 1) * columns;
  const high = (1 - (rows - 1) * below) / rows, wide = (1 - (columns - 1) * across) / columns;
  names.forEach((name, number) => {
    const column = number % columns, row = Math.floor(number / columns), id = number ? number + 2 : "";
    const left = column * (wide + across), top = 1 - row * (high + below);
    const x = axis(given.xaxis, wide * (width - 80)), y = axis(given.yaxis, PANEL_HEIGHT - 60), isNamed = [
      number === last + Math.floor((count - last - 1) / 2), !column && row === Math.floor((rows - 1) / 2)];
    [x, y].forEach((each, index) => { if (!isNamed[index]) delete each.title; });
    found[`xaxis${id}`] = {...x, domain: [left, left + wide], anchor: `y${id}`, showticklabels: number + columns >= count,
      ...(number ? {matches: "x"} : {})};
    found[`yaxis${id}`] = {...y, domain: [Math.max(top - high, 0), top], anchor: `x${id}`, showticklabels: !column,
      ...(number ? {matches: "y"} : {})};
    found.annotations.push({text: name, showarrow: false, xref: "paper", yref: "paper", x: left + wide / 2, y: top,
      xanchor: "center", yanchor: "bottom", font: {size: 13, color: axis({}).title.font.color}});
  });
  return found;
}

// The name of an axis in as many lines as its length allows: plotly.js would cut off the ends of a longer one.
function wrapped(text, length) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = `${lines.at(-1)} ${word}`.trim();
    if (line.length * NAME_WIDTH > length && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = line;
  }
  return lines.join("<br>");
}

function layout(given, colours, isPrinted, width) {
  const line = {gridcolor: colours.grid, zerolinecolor: colours.grid, linecolor: colours.grid, automargin: true,
    separatethousands: true, exponentformat: "power", hoverformat: ",.6~g"};
  const axis = (own, length = HEIGHT - 90) => ({...line, ...own, title: {
    text: wrapped(own.title?.text ?? "", length), font: {color: colours.soft, size: 13}, standoff: 8}});
  return {
    xaxis: axis(given.xaxis, width - 90), yaxis: axis(given.yaxis),
    yaxis2: {overlaying: "y", range: [0, 1], visible: false, fixedrange: true},  // what is marked lies on it
    font: {family: "system-ui, sans-serif", size: 12, color: colours.soft},
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: [colours.ink],
    hoverlabel: {bgcolor: colours.paper, bordercolor: colours.soft, font: {color: colours.ink}, namelength: -1},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: colours.soft, activecolor: colours.ink},
    margin: {l: 56, r: 16, t: 28, b: 44}, height: HEIGHT, showlegend: false, hovermode: given.hovermode,
    dragmode: byTouch.matches ? false : "zoom",  // a finger that is drawn over a plot moves the page
    uirevision: "kept", barmode: "stack", bargap: 0.2,
    ...(isPrinted ? {width: PAPER_WIDTH, autosize: false} : {autosize: true}),
    ...(given.panels ? panels(given, axis, width) : {}),
  };
}

function draw(figure, isPrinted = false) {
  const plot = figure.querySelector(".plot"), title = figure.querySelector("figcaption").textContent;
  const given = specification(figure, isPrinted), colours = looks(isPrinted);
  const hidden = new Set((plot.data ?? []).filter(trace => trace.visible === "legendonly").map(trace => trace.name));
  for (const trace of given.data) if (hidden.has(trace.name)) trace.visible = "legendonly";
  if (plot.dataset.range) given.layout.xaxis.range = JSON.parse(plot.dataset.range);
  const now = layout(given.layout, colours, isPrinted, isPrinted ? PAPER_WIDTH : plot.clientWidth);
  plot.style.height = `${now.height}px`;
  const file = title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  Plotly.react(plot, given.data, now, {
    responsive: true, displaylogo: false, modeBarButtons: BUTTONS, plotlyServerURL: "",
    toImageButtonOptions: {format: "svg", filename: file},
  });
  legend(figure, plot);
  if (!plot.dataset.reads) reads(figure, plot, title);
}

// The legend: a button for each name, which shows and hides what has it.
function legend(figure, plot) {
  const names = new Map();
  plot.data.forEach((trace, index) => {
    if (trace.name === undefined) return;
    const entry = names.get(trace.name) ?? {indices: [], trace};
    entry.indices.push(index);
    if (trace.showlegend !== false) entry.trace = trace;
    names.set(trace.name, entry);
  });
  const before = figure.querySelector(".legend");
  if (names.size < 2 && !plot.data.some(trace => trace.yaxis === "y2")) return before?.remove();
  const list = before ?? document.createElement("div");
  const focused = [...list.children].indexOf(document.activeElement);
  list.className = "legend";
  list.replaceChildren(...[...names.values()].map(({indices, trace}) => {
    const button = document.createElement("button"), isShown = trace.visible !== "legendonly";
    button.type = "button";
    button.append(sample(trace), shown(trace.name));
    button.setAttribute("aria-pressed", isShown);
    button.onclick = () => {
      const isNow = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", isNow);
      Plotly.restyle(plot, {visible: isNow ? true : "legendonly"}, indices);
    };
    return button;
  }));
  if (!before) plot.after(list);
  if (focused >= 0) list.children[focused]?.focus();
}

function sample(trace) {  // a piece of what is drawn
  const piece = document.createElement("i"), isLine = trace.mode?.startsWith("lines") && !trace.fill;
  const colour = trace.fillcolor ?? trace.colorscale?.[1][1] ?? (isLine ? trace.line : trace.marker).color;
  if (isLine) {
    const dashes = trace.line.dash === "solid" ? [24, 0] : trace.line.dash.split(",").map(parseFloat);
    let at = 0;
    const stops = dashes.map((length, index) => `${index % 2 ? "transparent" : colour} ${at}px ${at += length}px`);
    Object.assign(piece.style, {background: `repeating-linear-gradient(90deg, ${stops})`, height: "2px"});
  }
  else Object.assign(piece.style, {background: colour, height: "9px", width: "9px", opacity: trace.opacity ?? 1,
    clipPath: SHAPES[trace.marker?.symbol] ?? "none"});
  return piece;
}

function shown(name) {  // a name is escaped for plotly.js
  return name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

// The keyboard: the arrows tell values, as the mouse does.
function reads(figure, plot, title) {
  let line = 0, at = -1;
  const told = document.createElement("p");
  told.className = "told";
  told.setAttribute("aria-live", "polite");
  figure.append(told);
  Object.assign(plot, {tabIndex: 0});
  plot.dataset.reads = "yes";
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-label", `${title}. ${KEYS}`);
  const curves = () => plot.data.map((trace, index) => ({trace, index})).filter(
    ({trace}) => trace.hoverinfo !== "skip" && trace.type !== "heatmap" && trace.visible !== "legendonly");
  const tell = (by, isLine) => {
    const all = curves();
    if (!all.length) return;
    line = (line + (isLine ? by : 0) + all.length) % all.length;
    const {trace, index} = all[line], last = trace.x.length - 1;
    const hasValue = point => trace.x[point] !== null && trace.y[point] !== null;
    let next = Math.min(Math.max(isLine ? at : at + by, 0), last);
    while (!isLine && next > 0 && next < last && !hasValue(next)) next += Math.sign(by);
    if (!hasValue(next)) return;
    at = next;
    Plotly.Fx.hover(plot, [{curveNumber: index, pointNumber: at}], [`${trace.xaxis ?? "x"}${trace.yaxis ?? "y"}`]);
    const values = trace.yaxis === "y2" ? [trace.x[at]] : [trace.x[at], trace.y[at]];  // a mark has no y of its own
    const panel = trace.meta === undefined ? "" : `${shown(trace.meta)}, `;
    const name = trace.name === undefined ? "" : `${panel}${shown(trace.name)}: `;
    told.textContent = name + values.map(value => shown(String(value))).join(", ");
  };
  const zoom = factor => {
    const [low, high] = plot._fullLayout.xaxis.range.map(Number), x = curves()[line]?.trace.x[at];
    const isLog = plot._fullLayout.xaxis.type === "log";
    const middle = typeof x === "number" ? (isLog ? Math.log10(x) : x) : (low + high) / 2;
    Plotly.relayout(plot, {"xaxis.range": [middle + (low - middle) * factor, middle + (high - middle) * factor]});
  };
  const own = name => JSON.parse(figure.querySelector("script").textContent).layout[name].range;
  const all = () => Plotly.relayout(plot, Object.fromEntries(["xaxis", "yaxis"].map(
    name => own(name) ? [`${name}.range`, own(name)] : [`${name}.autorange`, true])));
  plot.on("plotly_relayout", () => {  // what is zoomed stays so when the plot is drawn again
    const whole = JSON.stringify(own("xaxis")), range = JSON.stringify(plot._fullLayout.xaxis.range);
    if (whole === undefined || whole === range) delete plot.dataset.range;
    else plot.dataset.range = range;
  });
  const keys = {ArrowRight: () => tell(1), ArrowLeft: () => tell(-1), ArrowUp: () => tell(-1, true),
    ArrowDown: () => tell(1, true), Home: () => tell(-Infinity), End: () => tell(Infinity),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: all, Escape: all};
  plot.addEventListener("keydown", event => {
    if (event.target !== plot || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
}

function drawAll(isPrinted = false) {
  for (const figure of document.querySelectorAll("figure:has(.plot)")) draw(figure, isPrinted);
}

// Another content for a part of the page: plots that stay keep their zoom, and what was hidden stays so.
function showContent(part, html) {
  const fresh = document.createElement("div"), focused = document.activeElement;
  fresh.innerHTML = html;
  const title = figure => figure.querySelector("figcaption").textContent;
  const before = new Map([...part.querySelectorAll("figure:has(.plot)")].map(figure => [title(figure), figure]));
  for (const figure of fresh.querySelectorAll("figure:has(.plot)")) {
    const kept = before.get(title(figure));
    if (kept === undefined) continue;
    before.delete(title(figure));
    kept.querySelector("script").textContent = figure.querySelector("script").textContent;
    figure.replaceWith(kept);
  }
  part.replaceChildren(...fresh.childNodes);
  if (part.contains(focused)) focused.focus({preventScroll: true});
  drawAll();
}

darkness.addEventListener("change", () => drawAll());
addEventListener("beforeprint", () => drawAll(true));
addEventListener("afterprint", () => drawAll());
drawAll();
