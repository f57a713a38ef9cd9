// The timeline: one lane per process, with its step time above its marks, by time or by step.
const ROW = 13;
const SHORT = ["compile", "recompile", "break", "limit", "skipped", "anomaly"];

function decoded(columns) {
  let time = 0;
  return columns.kind.map((kind, i) => {
    time += columns.time[i];
    return {
      kind, time: time / data.ticks, lane: columns.lane[i], seconds: columns.seconds[i], step: columns.step[i],
      label: columns.strings[columns.label[i]], detail: columns.strings[columns.detail[i]],
      id: columns.strings[columns.id[i]], finding: columns.finding[i], x: 0, width: 2,
    };
  });
}

const timeline = {
  canvas: document.querySelector("#timeline-chart canvas"), marks: decoded(data.moments),
  axis: "time", view: null, shown: null, selected: null, drag: null,
};
timeline.kinds = data.kinds.map((_, kind) => kind).filter((kind) => timeline.marks.some((m) => m.kind === kind));
timeline.curves = data.steps.filter(Boolean);

const valueOf = (mark) => (timeline.axis === "time" ? mark.time : mark.step || 0);
const isShown = (mark) => !timeline.shown || (mark.finding >= 0 && timeline.shown[mark.finding]);
const curveStart = (curve, i) => (timeline.axis === "time" ? curve.times && curve.times[i] : curve.steps[i] - 1);

function bounds() {
  let high = timeline.axis === "time" ? data.seconds || 0 : 1;
  for (const mark of timeline.marks) {
    high = Math.max(high, valueOf(mark) + (timeline.axis === "time" ? mark.seconds || 0 : 1));
  }
  for (const curve of timeline.curves) {
    const last = curve.steps.length - 1;
    const end = curveStart(curve, last);
    if (end !== null) high = Math.max(high, end + (timeline.axis === "time" ? curve.values[last] || 0 : 1));
  }
  return [0, high || 1];
}

function laneHeights() {
  const head = 18;
  const curve = timeline.curves.length ? (data.lanes.length > 4 ? 40 : 72) : 0;
  return { head, curve, lane: head + curve + timeline.kinds.length * ROW + 8 };
}

function curveRange() {
  const values = timeline.curves.flatMap((c) => c.values).filter((v) => v > 0);
  const low = Math.min(...values), high = Math.max(...values);
  return values.length ? [low / 1.3, Math.max(high * 1.3, low * 4)] : [1, 10];
}

function drawTimeline() {
  if (!timeline.canvas) return;
  const sizes = laneHeights();
  const { pen, width, height } = surface(timeline.canvas, Math.max(1, data.lanes.length) * sizes.lane + 24);
  const [from, to] = timeline.view || bounds();
  const plot = { pen, left: GUTTER, right: width - 8, top: 0, bottom: height - 24, from, to, sizes };
  plot.at = (value) => plot.left + ((value - from) / (to - from)) * (plot.right - plot.left);
  timeline.plot = plot;
  drawAxis(plot);
  data.lanes.forEach((lane, number) => drawLane(plot, lane, number));
  drawMarks(plot);
  if (timeline.selected && inView(timeline.selected)) {
    const x = Math.round(timeline.selected.x) + 0.5;
    line(pen, x, 0, x, plot.bottom, colour("--focus"));
  }
  if (timeline.drag && timeline.drag.moved) {
    pen.fillStyle = colour("--focus");
    pen.globalAlpha = 0.15;
    const { from: start, to: end } = timeline.drag;
    pen.fillRect(Math.min(start, end), 0, Math.abs(end - start), plot.bottom);
    pen.globalAlpha = 1;
  }
}

function drawAxis(plot) {
  const byTime = timeline.axis === "time";
  const values = ticks(plot.from, plot.to, (plot.right - plot.left) / 90, !byTime);
  const step = values.length > 1 ? values[1] - values[0] : plot.to - plot.from;
  for (const tick of values) {
    const x = Math.round(plot.at(tick)) + 0.5;
    line(plot.pen, x, 0, x, plot.bottom, colour("--line"));
    const words = byTime ? clock(tick, step) : String(tick);
    const half = plot.pen.measureText(words).width / 2;
    label(plot.pen, words, Math.min(x, plot.right - half), plot.bottom + 13, colour("--quiet"), "center");
  }
  label(plot.pen, byTime ? "time" : "step", 0, plot.bottom + 13, colour("--quiet"));
}

function drawLane(plot, lane, number) {
  const { pen, sizes } = plot;
  const top = number * sizes.lane;
  const rows = top + sizes.head + sizes.curve;
  if (number) line(pen, 0, top + 0.5, plot.right, top + 0.5, colour("--line"));
  const steady = timeline.axis === "time" ? lane.steadyTime : lane.steadyStep;
  if (steady !== null && steady > plot.from) {
    const edge = Math.min(plot.right, plot.at(steady));
    pen.globalAlpha = 0.06;
    pen.fillStyle = colour("--ink");
    pen.fillRect(plot.left, top + 1, edge - plot.left, sizes.lane - 1);
    pen.globalAlpha = 1;
  }
  if (data.lanes.length > 1) {
    pen.font = "600 11px system-ui, sans-serif";
    label(pen, fitted(pen, lane.name, GUTTER - 8), 0, top + 12, colour("--ink"));
    pen.font = "11px system-ui, sans-serif";
  }
  if (data.steps[number]) drawCurve(plot, data.steps[number], top + sizes.head);
  timeline.kinds.forEach((kind, row) => label(pen, SHORT[kind], 0, rows + row * ROW + ROW / 2, colour("--quiet")));
  if (steady !== null && steady >= plot.from && steady <= plot.to) {
    const x = Math.round(plot.at(steady)) + 0.5;
    line(pen, x, top + 1, x, top + sizes.lane - 2, colour("--ink"), [3, 3]);
    const words = timeline.axis === "time" ? `first compiles end at ${duration(steady)}` : `first compiles end at step ${steady}`;
    const fits = x + 6 + pen.measureText(words).width < plot.right;
    label(pen, words, fits ? x + 5 : x - 5, top + 9, colour("--ink"), fits ? "left" : "right");
  }
}

function drawCurve(plot, curve, top) {
  const { pen, sizes } = plot;
  const [low, high] = curveRange();
  const bottom = top + sizes.curve - 6;
  const y = (value) => bottom - (Math.log(Math.max(value, low) / low) / Math.log(high / low)) * (sizes.curve - 12);
  for (const tick of logTicks(low, high, sizes.curve / 22)) {
    line(pen, plot.left, Math.round(y(tick)) + 0.5, plot.right, Math.round(y(tick)) + 0.5, colour("--line"), [1, 3]);
    label(pen, tickDuration(tick), plot.left - 6, y(tick), colour("--quiet"), "right");
  }
  if (timeline.axis === "time" && !curve.times) {
    const words = "step times are drawn by step only: when the steps began was not recorded";
    label(pen, words, plot.left + 6, top + 20, colour("--quiet"));
    return;
  }
  pen.save();
  pen.beginPath();
  pen.rect(plot.left, top, plot.right - plot.left, sizes.curve);
  pen.clip();
  pen.beginPath();
  const last = curve.steps.length - 1;
  const first = plot.at(curveStart(curve, 0));
  const end = plot.at(curveStart(curve, last) + (timeline.axis === "time" ? curve.values[last] || 0 : 1));
  curve.values.forEach((value, i) => {
    const x = plot.at(curveStart(curve, i)), h = y(value || low);
    if (i === 0) pen.moveTo(x, h); else pen.lineTo(x, h);
    pen.lineTo(i < last ? plot.at(curveStart(curve, i + 1)) : end, h);
  });
  pen.strokeStyle = colour("--curve");
  pen.lineWidth = 1.25;
  pen.stroke();
  pen.lineTo(end, bottom + 6);
  pen.lineTo(first, bottom + 6);
  pen.globalAlpha = 0.13;
  pen.fillStyle = colour("--curve");
  pen.fill();
  pen.restore();
}

function rowTop(mark) {
  const { lane, head, curve } = timeline.plot.sizes;
  return mark.lane * lane + head + curve + timeline.kinds.indexOf(mark.kind) * ROW;
}

const inView = (mark) => mark.x + mark.width >= timeline.plot.left && mark.x <= timeline.plot.right;

// A mark on pixels that are already drawn is skipped; a mark that the filter hides is drawn faintly.
function drawMarks(plot) {
  const scale = (plot.right - plot.left) / (plot.to - plot.from);
  const rowAt = data.kinds.map((_, kind) => plot.sizes.head + plot.sizes.curve + timeline.kinds.indexOf(kind) * ROW);
  for (const pass of timeline.shown ? [false, true] : [true]) {
    const drawn = new Map();
    plot.pen.globalAlpha = pass ? 1 : 0.2;
    for (const mark of timeline.marks) {
      mark.x = plot.at(valueOf(mark));
      mark.width = timeline.axis === "time" && mark.seconds ? Math.max(2, mark.seconds * scale) : 2;
      if (isShown(mark) !== pass || !inView(mark)) continue;
      const row = mark.lane * data.kinds.length + mark.kind;
      const end = Math.round(mark.x + mark.width);
      if (drawn.get(row) >= end) continue;
      drawn.set(row, end);
      const left = Math.max(mark.x, plot.left), right = Math.min(mark.x + mark.width, plot.right);
      plot.pen.fillStyle = colour(`--k${mark.kind}`);
      plot.pen.fillRect(left, mark.lane * plot.sizes.lane + rowAt[mark.kind] + 2, right - left, ROW - 4);
    }
  }
  plot.pen.globalAlpha = 1;
}

const drawTimelineLater = later(drawTimeline);

function markAt(x, y) {
  let best = null, nearest = 7;
  for (const mark of timeline.marks) {
    const top = rowTop(mark);
    if (y < top || y >= top + ROW || !inView(mark)) continue;
    const away = x < mark.x ? mark.x - x : Math.max(0, x - mark.x - mark.width);
    if (away < nearest || (away === nearest && best && mark.width < best.width)) { best = mark; nearest = away; }
  }
  return best;
}

function stepAt(x, y) {
  const { plot } = timeline;
  const lane = Math.floor(y / plot.sizes.lane);
  const curve = data.steps[lane];
  const inside = y - lane * plot.sizes.lane - plot.sizes.head;
  if (!curve || inside < 0 || inside > plot.sizes.curve || (timeline.axis === "time" && !curve.times)) return "";
  let at = -1;
  while (at + 1 < curve.steps.length && plot.at(curveStart(curve, at + 1)) <= x) at += 1;
  return at < 0 ? "" : `step ${curve.steps[at]}: ${duration(curve.values[at] || 0)}`;
}

const isBeside = (a, b) => a.lane === b.lane && a.kind === b.kind && Math.abs(a.x - b.x) < 2;

function description(mark) {
  const facts = [];
  if (mark.id) facts.push(`compile ${mark.id}`);
  if (mark.step !== null) facts.push(`step ${mark.step}`);
  facts.push(`at ${clock(mark.time, 0.01)}`);
  if (mark.seconds !== null) facts.push(`took ${duration(mark.seconds)}`);
  if (data.lanes.length > 1 && data.lanes[mark.lane].name) facts.push(data.lanes[mark.lane].name);
  const numMore = timeline.marks.filter((other) => isBeside(other, mark)).length - 1;
  if (numMore) facts.push(`and ${numMore} more here`);
  return { head: `${data.kinds[mark.kind]}: ${mark.label}`, facts: facts.join(", "), detail: mark.detail };
}

function tipWords(mark) {
  const { head, facts, detail } = description(mark);
  const click = mark.finding >= 0 ? `click: ${data.codes[mark.finding]}` : "";
  return [head, facts, detail, click].filter(Boolean).join("\n");
}

function select(mark) {
  timeline.selected = mark;
  const { head, facts, detail } = description(mark);
  const name = document.createElement("b");
  name.textContent = head;
  byId("readout").replaceChildren(name, ` ${facts}. ${detail} `);
  if (mark.finding >= 0) {
    const link = document.createElement("a");
    link.href = `#${data.findings[mark.finding]}`;
    link.textContent = `Go to ${data.codes[mark.finding]}`;
    byId("readout").append(link);
  }
  drawTimeline();
}

function neighbour(direction) {
  const all = timeline.marks.filter((m) => isShown(m) && inView(m)).sort((a, b) => valueOf(a) - valueOf(b));
  const now = timeline.selected;
  let at = all.indexOf(now);
  if (at < 0) return all[direction > 0 ? 0 : all.length - 1];
  do at += direction; while (all[at] && isBeside(all[at], now));
  return all[at];
}

function zoom(from, to) {
  const [low, high] = bounds();
  const smallest = (high - low) / 1e5;
  from = Math.max(low, from);
  to = Math.min(high, to);
  timeline.view = to - from < smallest || (from <= low && to >= high) ? null : [from, to];
  drawTimeline();
}

function zoomBy(factor) {
  const [from, to] = timeline.view || bounds();
  const middle = timeline.selected ? valueOf(timeline.selected) : (from + to) / 2;
  const half = ((to - from) * factor) / 2;
  zoom(middle - half, middle + half);
}

function startTimeline() {
  const { canvas } = timeline;
  if (!canvas) return;
  charts.push(drawTimeline);
  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    const [x] = where(event);
    timeline.drag = { from: x, to: x, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = where(event);
    if (timeline.drag && event.buttons) {
      timeline.drag.to = x;
      timeline.drag.moved = timeline.drag.moved || Math.abs(x - timeline.drag.from) > 6;
      if (timeline.drag.moved) { showTip(event, ""); drawTimeline(); }
      return;
    }
    const mark = markAt(x, y);
    canvas.style.cursor = mark && mark.finding >= 0 ? "pointer" : "crosshair";
    showTip(event, mark ? tipWords(mark) : stepAt(x, y));
  });
  canvas.addEventListener("pointerleave", (event) => { timeline.drag = null; showTip(event, ""); drawTimeline(); });
  canvas.addEventListener("pointerup", (event) => {
    const { drag, plot } = timeline;
    timeline.drag = null;
    if (drag && drag.moved) {
      const back = (x) => plot.from + ((x - plot.left) / (plot.right - plot.left)) * (plot.to - plot.from);
      zoom(back(Math.min(drag.from, drag.to)), back(Math.max(drag.from, drag.to)));
      return;
    }
    const mark = markAt(...where(event));
    if (!mark) return;
    select(mark);
    if (mark.finding >= 0) goTo(data.findings[mark.finding]);
  });
  for (const input of document.querySelectorAll("input[name=axis]"))
    input.addEventListener("change", () => { timeline.axis = input.value; timeline.view = null; drawTimeline(); });
  byId("mark-before").addEventListener("click", () => { const mark = neighbour(-1); if (mark) select(mark); });
  byId("mark-after").addEventListener("click", () => { const mark = neighbour(1); if (mark) select(mark); });
  byId("zoom-in").addEventListener("click", () => zoomBy(0.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(2));
  byId("zoom-all").addEventListener("click", () => zoom(...bounds()));
}
startTimeline();
