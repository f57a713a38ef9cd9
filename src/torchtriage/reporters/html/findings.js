// The list of findings: filter, links that open what they lead to, copying, and printing all of it.
const form = byId("filter");
const rows = [...document.querySelectorAll(".finding")].map((element) => ({ element, ...element.dataset, text: null }));
const SELECTS = ["code", "owner", "file"];
const ROW_HEIGHT = 62;             // of a closed finding, about

function wanted() {
  const fields = new FormData(form);
  const words = String(fields.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const levels = new Set(fields.getAll("severity"));
  const chosen = SELECTS.map((name) => [name, fields.get(name)]).filter(([, value]) => value);
  return { words, levels, chosen };
}

function passes(row, { words, levels, chosen }) {
  if (!levels.has(row.severity) || chosen.some(([name, value]) => row[name] !== value)) return false;
  if (!words.length) return true;
  row.text ??= row.element.textContent.toLowerCase();
  return words.every((word) => row.text.includes(word));
}

// The browser passes over a group that is out of sight, so it has to be told how tall the group would be.
function sizeGroups(shown) {
  const numbers = new Map();
  rows.forEach(({ element }, i) => numbers.set(element.parentElement, (numbers.get(element.parentElement) || 0) + shown[i]));
  for (const [group, number] of numbers) {
    group.hidden = number === 0;
    group.style.containIntrinsicHeight = `${number * ROW_HEIGHT}px`;
  }
}

function applyFilter() {
  const want = wanted();
  const shown = rows.map((row) => passes(row, want));
  rows.forEach((row, i) => { if (row.element.hidden === shown[i]) row.element.hidden = !shown[i]; });
  sizeGroups(shown);
  const number = shown.filter(Boolean).length;
  byId("shown").textContent = `${number} of ${rows.length}`;
  byId("none").hidden = number > 0;
  timeline.shown = number < rows.length ? shown : null;
  drawTimelineLater();
  keepInAddress();
}

// The filter is part of the address, so that a view can be sent to somebody.
const keepInAddress = later(() => {
  const kept = new URLSearchParams();
  const { levels, chosen } = wanted();
  const text = form.elements.text.value.trim();
  const boxes = [...form.querySelectorAll("input[name=severity]")];
  if (text) kept.set("text", text);
  for (const [name, value] of chosen) kept.set(name, value);
  if (levels.size < boxes.length) kept.set("severity", [...levels].join(","));
  const hash = String(kept);
  if (hash || location.hash.startsWith("#?")) history.replaceState(null, "", hash ? `#?${hash}` : location.pathname + location.search);
});

function filterFromAddress() {
  if (!location.hash.startsWith("#?")) return;
  const kept = new URLSearchParams(location.hash.slice(2));
  form.elements.text.value = kept.get("text") || "";
  for (const name of SELECTS) if ([...form.elements[name].options].some((o) => o.value === kept.get(name))) form.elements[name].value = kept.get(name);
  const levels = kept.has("severity") ? kept.get("severity").split(",") : null;
  for (const box of form.querySelectorAll("input[name=severity]")) box.checked = !levels || levels.includes(box.value);
}

function goTo(id) {
  if (location.hash === `#${id}`) reveal();
  else location.hash = id;
}

// Opens what the address names; a finding that the filter hides is shown again.
function reveal() {
  const target = byId(location.hash.slice(1));
  if (!target) return;
  if (target.hidden && form) { form.reset(); applyFilter(); }
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}

async function copy(button) {
  const words = button.closest(".fix").querySelector("[data-copied]").textContent.trimEnd();
  try {
    await navigator.clipboard.writeText(words);
  } catch {
    const area = document.createElement("textarea");
    area.value = words;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
  byId("said").textContent = "Copied.";
  setTimeout(() => { button.textContent = "Copy"; byId("said").textContent = ""; }, 1500);
}

function openForPrint(all) {
  root.classList.toggle("printing", all);
  for (const { element } of rows) {
    if (all && !element.open) { element.dataset.closed = ""; element.open = true; }
    if (!all && "closed" in element.dataset) { delete element.dataset.closed; element.open = false; }
  }
  redraw();
}

if (form) {
  filterFromAddress();
  form.addEventListener("input", applyFilter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(applyFilter));
  byId("open-all").addEventListener("click", (event) => {
    const open = event.target.textContent === "Open all";
    rows.forEach(({ element }) => { element.open = open; });
    event.target.textContent = open ? "Close all" : "Open all";
  });
  applyFilter();
}
document.addEventListener("click", (event) => {
  if (event.target.matches("button.copy")) copy(event.target);
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) reveal();
});
window.addEventListener("hashchange", () => { if (location.hash.startsWith("#?") && form) { filterFromAddress(); applyFilter(); } else reveal(); });
window.addEventListener("beforeprint", () => openForPrint(true));
window.addEventListener("afterprint", () => openForPrint(false));
redraw();
reveal();
