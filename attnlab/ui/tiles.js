// The tiles of the score matrix, one on chip at a time. Everything is drawn from the numbers that tiles.py sends; playing
// and stepping stay in the browser. TOKENS is put in front of this file by tiles.py.

const PLAY_MS = { tile: 120, least: 3000, most: 12000 };  // of the whole walk

function isDark(element) {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(element).getPropertyValue("--st-background-color") || "#fff";
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(canvas.fillStyle.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}

function size(bytes) {
  for (const [unit, factor] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes < 0.9995 * factor) continue;
    const scaled = bytes / factor;
    return `${scaled >= 99.95 ? Math.round(scaled).toLocaleString("en") : scaled.toPrecision(3)} ${unit}`;
  }
  return `${bytes.toLocaleString("en")} B`;
}

// (row, column) of a step, and the bytes once its tile is done: each once, and as asked for.
function moment(told, step) {
  let row = 0, widest = 0, before = 0, left = step;
  while (left >= told.widths[row]) {
    left -= told.widths[row];
    widest = Math.max(widest, told.widths[row]);
    before += told.keyBytes[told.widths[row]];
    row += 1;
  }
  const written = told.queryBytes[row + (left + 1 === told.widths[row] ? 1 : 0)];
  const queries = told.queryBytes[row + 1] + written;
  return {
    row, column: left,
    once: queries + told.keyBytes[Math.max(widest, left + 1)],
    asked: queries + before + told.keyBytes[left + 1],
  };
}

const PAGE = `
  <div data-part="bar" style="display:flex;gap:.6rem;align-items:center;height:2.4rem">
    <button type="button" data-do="play" style="min-width:5.2rem"></button>
    <button type="button" data-do="back" aria-label="One tile back">◀</button>
    <button type="button" data-do="next" aria-label="One tile on">▶</button>
    <input type="range" min="0" step="1" aria-label="Step" style="flex:1;min-width:6rem">
    <span data-figure="step" style="white-space:nowrap;font-variant-numeric:tabular-nums"></span>
  </div>
  <div data-part="stage" style="display:flex;gap:1.6rem;height:calc(100% - 2.4rem);padding-top:.5rem">
    <canvas style="flex:none" role="img"></canvas>
    <div data-part="panel" style="flex:1;min-width:0;overflow:hidden;display:flex;flex-direction:column;
      justify-content:space-between;font-variant-numeric:tabular-nums;line-height:1.3"></div>
  </div>`;

function make(parentElement) {
  const root = document.createElement("div");
  root.className = "attnlab-tiles";
  root.innerHTML = PAGE;
  parentElement.appendChild(root);
  const find = (what) => root.querySelector(what);
  const view = {
    root, step: 0, playing: false, canvas: find("canvas"), range: find("input"), panel: find('[data-part="panel"]'),
    play: find('[data-do="play"]'), said: find('[data-figure="step"]'),
  };
  const go = (step) => {
    view.playing = false;
    view.step = Math.min(view.steps - 1, Math.max(0, step));
    draw(view);
  };
  view.play.onclick = () => {
    view.playing = !view.playing;
    if (view.playing && view.step >= view.steps - 1) view.step = 0;
    view.position = view.step;
    view.before = undefined;
    draw(view);
    if (view.playing) requestAnimationFrame((now) => frame(view, now));
  };
  find('[data-do="back"]').onclick = () => go(view.step - 1);
  find('[data-do="next"]').onclick = () => go(view.step + 1);
  view.range.oninput = () => go(Number(view.range.value));
  new ResizeObserver(() => requestAnimationFrame(() => view.told && draw(view))).observe(root);
  return view;
}

// The colours of the theme that the viewer looks at; Streamlit calls the default export again when it changes.
function dress(view) {
  const ink = TOKENS[isDark(view.root) ? "dark" : "light"];
  const paint = view.paint = (name) => ink[`var(--attn-${name})`];
  view.root.style.color = paint("text");
  view.range.style.accentColor = paint("flash");
  for (const button of view.root.querySelectorAll("button")) {
    Object.assign(button.style, {
      font: "inherit", color: paint("text"), background: "transparent", border: `1px solid ${paint("quiet")}`,
      borderRadius: ".5rem", padding: ".15rem .8rem", cursor: "pointer",
    });
  }
}

function frame(view, now) {
  if (!view.playing || !view.root.isConnected) return;
  const whole = Math.min(PLAY_MS.most, Math.max(PLAY_MS.least, view.steps * PLAY_MS.tile));
  view.position += ((now - (view.before ?? now)) / whole) * view.steps;
  view.before = now;
  view.step = Math.min(view.steps - 1, Math.floor(view.position));
  if (view.step === view.steps - 1) view.playing = false;
  draw(view);
  requestAnimationFrame((next) => frame(view, next));
}

function draw(view) {
  const { told, root } = view;
  if (!root.isConnected || !root.clientWidth) return;
  const { paint } = view;
  const now = moment(told, view.step);
  view.play.textContent = view.playing ? "Pause" : "Play";
  view.range.max = view.steps - 1;
  view.range.value = view.step;
  view.said.textContent = `tile ${(view.step + 1).toLocaleString("en")} of ${view.steps.toLocaleString("en")}`;
  root.dataset.step = view.step;
  root.dataset.frames = Number(root.dataset.frames || 0) + 1;
  matrix(view, now, paint);
  panel(view, now, paint);
}

function matrix(view, now, paint) {
  const { told, canvas, root } = view;
  const rows = told.widths.length, columns = told.columns;
  const room = Math.min(root.querySelector('[data-part="stage"]').clientHeight - 10, root.clientWidth * 0.5);
  const scale = window.devicePixelRatio || 1, strip = Math.max(14, room * 0.045), gap = strip * 0.45;
  const letter = Math.max(15, room * 0.045), top = letter * 1.3, left = letter * 1.3 + strip + gap;
  const down = top + 2 * (strip + gap), side = Math.min(room - down, room - left), width = left + side + gap + strip + letter * 1.3;
  canvas.width = width * scale;
  canvas.height = room * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${room}px`;
  const c = canvas.getContext("2d"), w = side / columns, h = side / rows;
  c.scale(scale, scale);
  const box = (x, y, dx, dy, color, alpha = 1) => { c.globalAlpha = alpha; c.fillStyle = color; c.fillRect(x, y, dx, dy); c.globalAlpha = 1; };
  const say = (words, x, y, align = "center", color = paint("text")) => {
    c.font = `600 ${letter}px ${getComputedStyle(root).fontFamily}`;
    c.textAlign = align; c.textBaseline = "middle"; c.fillStyle = color; c.fillText(words, x, y);
  };
  const flash = paint("flash"), quiet = paint("quiet"), grid = paint("grid");
  // Tiles of before pale, the one on chip solid, skipped ones hatched.
  if (Math.min(w, h) >= 4) {
    c.strokeStyle = quiet; c.globalAlpha = 0.35; c.lineWidth = 1; c.beginPath();
    for (let i = 1; i < columns; i++) { c.moveTo(left + i * w, down); c.lineTo(left + i * w, down + side); }
    for (let i = 1; i < rows; i++) { c.moveTo(left, down + i * h); c.lineTo(left + side, down + i * h); }
    c.stroke();
    c.globalAlpha = 1;
  }
  c.save();
  c.beginPath();
  for (let row = 0; row < rows; row++) c.rect(left + told.widths[row] * w, down + row * h, side - told.widths[row] * w, h);
  c.clip();
  box(left, down, side, side, grid);
  c.strokeStyle = quiet; c.globalAlpha = 0.6; c.lineWidth = 1; c.beginPath();
  for (let x = -side; x < side; x += 9) { c.moveTo(left + x, down + side); c.lineTo(left + x + side, down); }
  c.stroke();
  c.restore();
  c.beginPath();  // one fill: edges that overlap must not add up
  for (let row = 0; row < now.row; row++) c.rect(left, down + row * h, told.widths[row] * w, h + 0.5);
  c.rect(left, down + now.row * h, now.column * w, h);
  c.globalAlpha = 0.32; c.fillStyle = flash; c.fill(); c.globalAlpha = 1;
  c.strokeStyle = quiet; c.lineWidth = 1; c.strokeRect(left, down, side, side);
  const x = left + now.column * w, y = down + now.row * h, tall = Math.max(h, 4), wide = Math.max(w, 4);
  box(left, y, side, tall, flash, 0.1);
  box(x, down, wide, side, flash, 0.1);
  box(x, y, wide, tall, flash);
  // Q to the left, K and V above, O to the right: in memory pale, loaded before darker, on chip solid; O as it is written.
  const widest = Math.max(0, now.column, ...told.widths.slice(0, now.row)) * w;
  for (const [name, row] of [["K", 0], ["V", 1]]) {
    const at = top + row * (strip + gap) - letter * 0.6;
    box(left, at, side, strip, quiet, 0.35);
    box(left, at, widest, strip, flash, 0.35);
    box(x, at, wide, strip, flash);
    say(name, left - letter * 0.7, at + strip / 2);
  }
  box(left - gap - strip, down, strip, side, quiet, 0.35);
  box(left - gap - strip, down, strip, now.row * h, flash, 0.35);
  box(left - gap - strip, y, strip, tall, flash);
  say("Q", left - gap - strip - letter * 0.7, down + side / 2);
  const out = left + side + gap, done = now.row * h + (now.column + 1 === told.widths[now.row] ? h : 0);
  box(out, down, strip, side, quiet, 0.18);
  box(out, down, strip, done, paint("flash-attn-2"));
  if (done <= now.row * h) box(out, y, strip, tall, flash);
  say("O", out + strip + letter * 0.7, down + side / 2);
  const skipped = told.widths.some((tiles) => tiles < columns);
  if (skipped) {
    const words = "skipped", at = [left + side * 0.72, down + side * 0.2];
    c.font = `600 ${letter}px ${getComputedStyle(root).fontFamily}`;
    const half = c.measureText(words).width / 2 + 8;
    box(at[0] - half, at[1] - letter * 0.8, 2 * half, letter * 1.6, paint("page"));
    say(words, ...at, "center", quiet);
  }
  canvas.setAttribute("aria-label", root.getAttribute("aria-label"));
}

function range(first, block, seq) {
  return `${first.toLocaleString("en")}–${(Math.min(first + block, seq) - 1).toLocaleString("en")}`;
}

function bar(name, words, share, color, paint, figure) {
  const width = Math.min(100, Math.max(0.4, 100 * share));
  return `<div style="display:flex;justify-content:space-between;gap:.6rem;white-space:nowrap"><span>${name}</span>` +
    `<b data-figure="${figure}">${words}</b></div>` +
    `<div style="background:${paint("grid")};border-radius:.3rem;height:.6em;margin:.1em 0 .3em">` +
    `<div style="width:${share ? width : 0}%;height:100%;background:${color};border-radius:.3rem"></div></div>`;
}

function panel(view, now, paint) {
  const { told } = view;
  const needs = told.sram.reduce((sum, [, bytes]) => sum + bytes, 0), most = Math.max(needs, told.onChip);
  const kb = (bytes) => `${Math.round(bytes / told.kib).toLocaleString("en")} KB`;
  const fits = needs <= told.onChip;
  const shades = { Q: "flash", K: "sdpa-flash", V: "flash-attn-2", S: "standard", O: "flash-attn-3" };
  const parts = told.sram.map(([name, bytes]) =>
    `<div title="${name} ${kb(bytes)}" style="width:${100 * bytes / most}%;background:${paint(shades[name])};color:${paint("page")};` +
    `text-align:center;overflow:hidden;font-weight:600;font-size:.82em;line-height:1.7rem">${name}&nbsp;${kb(bytes).replace(" KB", "")}</div>`).join("");
  const heading = (words) => `<div style="font-weight:650;font-size:1.12em;margin-bottom:.15rem">${words}</div>`;
  const limit = 100 * told.onChip / most;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) / 17;
  const rows = told.few ? 205 : 390;  // few: no more than a hall can read
  view.panel.style.fontSize = `${Math.min(1.4, Math.max(0.94, view.panel.clientHeight / rem / rows))}rem`;
  view.panel.innerHTML = `<div>
    ${heading("On chip now")}
    <div data-figure="tile">queries ${range(now.row * told.blockQ, told.blockQ, told.seqQ)} × keys ${range(now.column * told.blockK, told.blockK, told.seqK)}</div>
    <div style="display:flex;background:${paint("grid")};border-radius:.3rem;overflow:hidden;margin:.25rem 0 0;position:relative;height:1.7rem">${parts}
      <div style="position:absolute;left:calc(${limit}% - 3px);top:0;bottom:0;border-left:3px solid ${paint("text")}"></div></div>
    <div data-figure="sram" style="${fits ? "" : `color:${paint("standard")}`}">${fits ? "" : "✗ "}${kb(needs)} of ${kb(told.onChip)} ${told.chip}${fits ? "" : ": smaller blocks are needed"}</div>
    </div>${told.few ? "" : `<div>
    ${heading("Scores in memory now")}
    ${bar("standard: all of them", size(told.scores), 1, paint("standard"), paint, "scores")}
    ${bar("flash: none; one tile, on chip", kb(told.tile), told.tile / told.scores, paint("flash"), paint, "tile-bytes")}
    </div>`}<div>
    ${heading(`Through memory so far, all ${told.heads.toLocaleString("en")} heads`)}
    ${bar("standard, the whole trip", size(told.standard), 1, paint("standard"), paint, "standard")}
    ${bar("flash, each byte once", size(now.once), now.once / told.standard, paint("flash"), paint, "once")}
    ${told.few ? "" : bar("flash, if no cache kept K and V", size(now.asked), now.asked / told.standard, paint("sdpa-flash"), paint, "asked")}
    </div>`;
}

export default function ({ data, parentElement }) {
  const [told, height, alt] = data;
  const view = (parentElement._attnlabTiles ??= make(parentElement));
  const said = JSON.stringify(told);
  if (view.key !== said) Object.assign(view, { key: said, told, step: 0, playing: false });
  view.steps = told.widths.reduce((sum, width) => sum + width, 0);
  view.root.style.cssText = `width:100%;height:${height};font-family:var(--st-font)`;
  dress(view);
  view.root.setAttribute("role", "group");
  view.root.setAttribute("aria-label", alt);
  draw(view);
}
