// The health charts: lines by step, and gradient norms as a heat map with a logarithmic colour scale.
function drawLines(canvas, chart) {
  const { pen, width, height } = surface(canvas, 150);
  const left = 52, right = width - 6, top = 8, bottom = height - 20;
  const steps = chart.curves.flatMap((c) => c.steps);
  const values = chart.curves.flatMap((c) => c.values).filter((v) => v !== null);
  const [from, to] = [Math.min(...steps), Math.max(...steps, Math.min(...steps) + 1)];
  const low = values.length ? Math.min(...values) : 0, high = values.length ? Math.max(...values) : 1;
  const pad = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
  const x = (step) => left + ((step - from) / (to - from)) * (right - left);
  const y = (value) => bottom - ((value - low + pad) / (high - low + 2 * pad)) * (bottom - top);
  for (const tick of ticks(low - pad, high + pad, 4)) {
    line(pen, left, Math.round(y(tick)) + 0.5, right, Math.round(y(tick)) + 0.5, colour("--line"));
    label(pen, plain(tick), left - 6, y(tick), colour("--quiet"), "right");
  }
  for (const tick of ticks(from, to, (right - left) / 80, true)) {
    label(pen, String(tick), x(tick), bottom + 11, colour("--quiet"), "center");
  }
  for (const [step] of data.anomalies) {
    if (step >= from && step <= to) line(pen, x(step), top, x(step), bottom, colour("--k5"), [3, 2]);
  }
  chart.curves.forEach((curve, number) => {
    pen.strokeStyle = pen.fillStyle = colour(`--line-${number % 6}`);
    pen.lineWidth = 1.4;
    pen.beginPath();
    let drawing = false;
    curve.values.forEach((value, i) => {
      const px = x(curve.steps[i]);
      if (value === null) {
        drawing = false;
        pen.fillStyle = colour("--not-finite");
        pen.fillRect(px - 1, bottom - 5, 2, 5);
        return;
      }
      if (drawing) pen.lineTo(px, y(value)); else pen.moveTo(px, y(value));
      drawing = true;
    });
    pen.stroke();
  });
  return (px) => {
    const step = from + ((px - left) / (right - left)) * (to - from);
    return chart.curves.map((curve) => {
      let at = 0;
      curve.steps.forEach((s, i) => { if (Math.abs(s - step) < Math.abs(curve.steps[at] - step)) at = i; });
      const process = chart.curves.length > 1 ? `${curve.process}, ` : "";
      const value = curve.values[at] === null ? "not finite" : plain(curve.values[at]);
      return `${process}step ${curve.steps[at]}: ${value}`;
    }).concat(anomaliesNear(step, ((to - from) * 4) / (right - left))).join("\n");
  };
}

function anomaliesNear(step, distance) {
  const near = data.anomalies.filter(([s]) => Math.abs(s - step) <= distance);
  return near.slice(0, 3).map(([s, words]) => `anomaly at step ${s}: ${words}`);
}

function mixed(stops, part) {
  const at = Math.min(stops.length - 2, Math.floor(part * (stops.length - 1)));
  const rest = part * (stops.length - 1) - at;
  const channel = (stop, n) => parseInt(stop.slice(1 + 2 * n, 3 + 2 * n), 16);
  const mix = (n) => Math.round(channel(stops[at], n) * (1 - rest) + channel(stops[at + 1], n) * rest);
  return `rgb(${[0, 1, 2].map(mix).join(",")})`;
}

const clamp = (number) => Math.max(0, Math.min(1, number));

function drawHeat(canvas, heat) {
  const tall = Math.max(5, Math.min(16, 480 / heat.rows.length));
  const { pen, width } = surface(canvas, heat.rows.length * tall + 44);
  const left = Math.min(200, Math.max(90, width * 0.25)), right = width - 6, bottom = heat.rows.length * tall;
  const values = heat.rows.flat().filter((v) => v !== null && v > 0);
  const low = values.length ? Math.min(...values) : 1, high = Math.max(...values, low * 10);
  const stops = [0, 1, 2, 3, 4].map((n) => colour(`--heat-${n}`));
  const cell = (right - left) / heat.columns;
  const part = (value) => clamp(Math.log(Math.max(value, low) / low) / Math.log(high / low));
  heat.rows.forEach((row, r) => row.forEach((value, c) => {
    if (value === null) return;
    pen.fillStyle = value === -1 ? colour("--not-finite") : mixed(stops, part(value));
    const begin = Math.round(left + c * cell);
    pen.fillRect(begin, r * tall, Math.round(left + (c + 1) * cell) - begin, tall >= 8 ? tall - 1 : tall);
  }));
  const every = Math.ceil(11 / tall);
  heat.names.forEach((name, r) => {
    if (r % every !== 0) return;
    label(pen, fitted(pen, name, left - 10), left - 6, (r + 0.5) * tall, colour("--quiet"), "right");
  });
  const x = (step) => left + ((step - heat.low) / (heat.high - heat.low || 1)) * (right - left);
  for (const tick of ticks(heat.low, heat.high, (right - left) / 80, true)) {
    label(pen, String(tick), Math.min(x(tick), right - 10), bottom + 10, colour("--quiet"), "center");
  }
  for (const [step] of data.anomalies) {
    if (step >= heat.low && step <= heat.high) line(pen, x(step), 0, x(step), bottom, colour("--k5"), [3, 2]);
  }
  for (let i = 0; i < 100; i += 1) { pen.fillStyle = mixed(stops, i / 99); pen.fillRect(left + i, bottom + 26, 1, 8); }
  label(pen, plain(low), left - 6, bottom + 30, colour("--quiet"), "right");
  label(pen, `${plain(high)} (log); red: not finite`, left + 106, bottom + 30, colour("--quiet"));
  return (px, py) => {
    const r = Math.floor(py / tall), c = Math.floor((px - left) / cell);
    if (!heat.rows[r] || c < 0 || c >= heat.columns) return "";
    const value = heat.rows[r][c], step = Math.round(heat.low + (c / heat.columns) * (heat.high - heat.low));
    let words = value === null ? "no value" : plain(value);
    if (value === -1) words = "not finite";
    return `${heat.names[r]}\nfrom step ${step}: ${words}`;
  };
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const canvas = figure.querySelector("canvas");
  const chart = figure.classList.contains("heat") ? data.heat : data.lines[Number(figure.dataset.chart)];
  let read = () => "";
  charts.push(() => { read = figure.classList.contains("heat") ? drawHeat(canvas, chart) : drawLines(canvas, chart); });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    showTip(event, read(event.clientX - box.left, event.clientY - box.top));
  });
  canvas.addEventListener("pointerleave", (event) => showTip(event, ""));
}
