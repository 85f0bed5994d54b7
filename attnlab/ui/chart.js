// One chart that stays: Plotly.react on a <div> that outlives every update, so that zoom and hidden series persist.
// Streamlit calls the default export again with the same parentElement for every new figure and for a change of theme.
// TOKENS and PLOTLY_PATH are put in front of this file by chart.py.
//
// A click on a point goes to the chart that listens, not to the one that was clicked: only the listener's fragment runs
// again, and the clicked chart is not even drawn anew.

const CONFIG = {
  displaylogo: false,
  showTips: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  doubleClick: "reset",
  toImageButtonOptions: { format: "png", scale: 2 },
};

const CLICK = "attnlab-point";

// plotly.js is 4.8 MB: one <script> a page load, shared by all charts.
function plotly() {
  window.__attnlabPlotly ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve(window.Plotly);
    const script = document.createElement("script");
    // Relative to Streamlit's own script, so that it works behind a prefix too.
    const own = document.querySelector('script[type="module"][src*="static/js/"]');
    script.src = new URL(own ? "../../" + PLOTLY_PATH : PLOTLY_PATH, own ? own.src : document.baseURI).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.js did not load from " + script.src));
    document.head.appendChild(script);
  });
  return window.__attnlabPlotly;
}

function isDark(element) {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(element).getPropertyValue("--st-background-color") || "#fff";
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(canvas.fillStyle.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}

function resolved(value, colors) {
  if (typeof value === "string") return colors[value] ?? value;
  if (Array.isArray(value)) return value.map((item) => resolved(item, colors));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, colors)]));
}

// Sizes in pixels are made for a chart of 400 px, unless the figure's `layout.meta.made_for_px` says another; they grow with the
// screen, up to `layout.meta.grows_to` times, and shrink a little beside an open sidebar.
const SIZES = new Set(["size", "width", "t", "r", "b", "l"]);

function sized(value, factor, key) {
  if (typeof value === "number") return SIZES.has(key) ? value * factor : value;
  if (typeof value === "string") return value.replace(/font-size:(\d+)px/, (_, px) => `font-size:${px * factor}px`);
  if (Array.isArray(value)) return value.map((item) => sized(item, factor));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, sized(item, factor, name)]));
}

function draw(Plotly, div) {
  if (!div.isConnected) return;
  const dark = isDark(div), font = getComputedStyle(div).getPropertyValue("--st-font");
  const drawn = [div._attnlabText, dark, font, div.clientWidth, div.clientHeight].join("\n");
  if (drawn === div._attnlabDrawn) return;
  const figure = JSON.parse(div._attnlabText);
  const madeFor = figure.layout.meta?.made_for_px ?? 400;
  const most = figure.layout.meta?.grows_to ?? 1.6;
  const factor = Math.min(most, Math.max(0.82, div.clientWidth / madeFor));
  const { data, layout } = sized(resolved(figure, TOKENS[dark ? "dark" : "light"]), factor);
  layout.font.family = layout.hoverlabel.font.family = font || layout.font.family;
  Plotly.react(div, data, { ...layout, autosize: true }, CONFIG);
  div._attnlabDrawn = drawn;
  div.dataset.theme = dark ? "dark" : "light";
  div.dataset.updates = String(Number(div.dataset.updates || 0) + 1);
  div._attnlabSize ??= observeSize(Plotly, div);
  div._attnlabClicks ??= tellClicks(div);
}

// A trace that stands for points has its path in `meta`. What a click means is what was hovered when the button went down:
// Plotly's own plotly_click is lost when a redraw ends the hover in between.
function tellClicks(div) {
  let hovered = null, pressed = null;
  const look = (point) => {
    hovered = point;
    div.querySelector(".nsewdrag").style.cursor = point ? "pointer" : "";
  };
  div.on("plotly_hover", ({ points: [{ data, x }] }) => look(data.meta ? [data.meta, x] : null));
  div.on("plotly_unhover", () => look(null));
  div.addEventListener("mousedown", () => { pressed = hovered; }, true);
  div.addEventListener("click", () => {  // none comes after a drag
    if (pressed) window.dispatchEvent(new CustomEvent(CLICK, { detail: pressed }));
    pressed = null;
  }, true);
  return true;
}

function observeSize(Plotly, div) {
  let width = div.clientWidth;
  const observer = new ResizeObserver(() => {
    if (!div.clientWidth || div.clientWidth === width) return;
    width = div.clientWidth;
    requestAnimationFrame(() => draw(Plotly, div));
  });
  observer.observe(div);
  return observer;
}

export default function ({ data, parentElement, setStateValue }) {
  const [text, height, alt, listens] = data;
  let div = parentElement.querySelector(":scope > .attnlab-chart");
  if (!div) {
    div = document.createElement("div");
    div.className = "attnlab-chart";
    div.style.width = "100%";
    div.setAttribute("role", "img");
    parentElement.appendChild(div);
  }
  div.style.height = height;
  div.setAttribute("aria-label", alt);
  div._attnlabText = text;
  // A state with the time in it, not a trigger: while fragments run, what a browser said can arrive late and twice.
  div._attnlabTell = (event) => setStateValue("point", [...event.detail, Date.now()]);
  if (listens && !div._attnlabListener) {
    div._attnlabListener = (event) => div._attnlabTell(event);
    window.addEventListener(CLICK, div._attnlabListener);
  }
  plotly().then(
    (Plotly) => draw(Plotly, div),
    (error) => { div.textContent = "This chart could not be drawn: " + error.message; },
  );
  // Streamlit also runs this when an update overtakes the one before it: only a chart that left the page is taken down.
  return () => setTimeout(() => {
    if (div.isConnected) return;
    window.removeEventListener(CLICK, div._attnlabListener);
    div._attnlabSize?.disconnect();
    window.Plotly?.purge(div);
  });
}
