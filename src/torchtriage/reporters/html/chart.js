// Parts that all charts share: the data, the colours of the theme, a sharp canvas, ticks, the tooltip.
const root = document.documentElement;
root.classList.add("scripted");
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const GUTTER = 76;
const charts = [];                 // functions that draw; all of them are called when the size or the theme changes

// Reading one style makes the browser compute all of them, so each colour is read once per theme.
const colours = new Map();
function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
  return colours.get(name);
}

function surface(canvas, height) {
  const width = canvas.parentElement.clientWidth - 20;
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return { pen, width, height };
}

function line(pen, x0, y0, x1, y1, stroke, dash = []) {
  pen.strokeStyle = stroke;
  pen.lineWidth = 1;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
  pen.setLineDash([]);
}

function label(pen, words, x, y, fill, align = "left") {
  pen.fillStyle = fill;
  pen.textAlign = align;
  pen.fillText(words, x, y);
}

// The text cut to a width; canvas text does not wrap.
function fitted(pen, words, width) {
  if (pen.measureText(words).width <= width) return words;
  let cut = words.length - 1;
  while (cut > 1 && pen.measureText(words.slice(0, cut) + "…").width > width) cut -= 1;
  return words.slice(0, cut) + "…";
}

function ticks(low, high, most, integers = false) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || rough;
  if (integers) step = Math.max(1, Math.round(step));
  const values = [];
  for (let k = Math.ceil(low / step); k * step <= high && values.length < 50; k += 1) values.push(k * step);
  return values;
}

function logTicks(low, high, most) {
  let values = [];
  for (const parts of [[1, 2, 5], [1]]) {
    values = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1)
      for (const n of parts) if (n * 10 ** power >= low && n * 10 ** power <= high) values.push(n * 10 ** power);
    if (values.length <= most) return values;
  }
  return values.filter((_, i) => i % Math.ceil(values.length / most) === 0);
}

// [a unit is used below this many seconds, seconds per unit, name]
const TIME_UNITS = [[1e-3, 1e-6, "us"], [1, 1e-3, "ms"], [600, 1, "s"], [7200, 60, "min"], [Infinity, 3600, "h"]];

// Three significant digits in the unit that suits the time, as in text.duration.
function duration(seconds) {
  if (seconds === 0) return "0 s";
  const rounded = Math.abs(Number(seconds.toPrecision(3)));
  const [, unitSeconds, unit] = TIME_UNITS.find(([below]) => rounded < below);
  const value = seconds / unitSeconds;
  const digits = Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0;
  return `${value.toFixed(digits)} ${unit}`;
}

// A tick is a round number: 10 s, not 10.0 s.
const tickDuration = (seconds) => duration(seconds).replace(/\.0+ /, " ");

function clock(seconds, step) {
  if (step >= 60) {
    const parts = [seconds / 3600, (seconds / 60) % 60, seconds % 60];
    const [hours, minutes, rest] = parts.map((n) => String(Math.floor(n)).padStart(2, "0"));
    return seconds >= 3600 ? `${hours}:${minutes}:${rest}` : `${minutes}:${rest}`;
  }
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step || 1))));
  return `${seconds.toFixed(digits)} s`;
}

function plain(number) {
  const size = Math.abs(number);
  const isExtreme = size >= 1e5 || (size !== 0 && size < 1e-3);
  return isExtreme ? number.toExponential(1) : String(+number.toPrecision(4));
}

const tip = byId("tip");
function showTip(event, words) {
  tip.hidden = !words;
  if (!words) return;
  tip.textContent = words;
  const room = window.innerWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, room)) + "px";
  const below = event.clientY + 18 + tip.offsetHeight < window.innerHeight;
  tip.style.top = (below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 12) + "px";
}

function later(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; work(); });
  };
}

function redraw() {
  colours.clear();
  charts.forEach((draw) => draw());
}
const redrawLater = later(redraw);
new ResizeObserver(redrawLater).observe(document.querySelector("main"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawLater);
