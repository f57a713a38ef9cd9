// The list of findings: its filter, links that open their target, copying, printing.
const form = byId("filter");
const rows = [...document.querySelectorAll(".finding")].map((element) => ({ element, ...element.dataset, text: null }));
const SELECTS = ["code", "owner", "file"];
const ROW_HEIGHT = 62;             // approximate height of a closed finding

function currentFilter() {
  const fields = new FormData(form);
  const words = String(fields.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const levels = new Set(fields.getAll("severity"));
  const selects = SELECTS.map((name) => [name, fields.get(name)]).filter(([, value]) => value);
  return { words, levels, selects };
}

function passes(row, { words, levels, selects }) {
  if (!levels.has(row.severity) || selects.some(([name, value]) => row[name] !== value)) return false;
  if (!words.length) return true;
  row.text ??= row.element.textContent.toLowerCase();
  return words.every((word) => row.text.includes(word));
}

// The browser does not lay out a group that is out of view, so the group's height is set here.
function sizeGroups(shown) {
  const numbers = new Map();
  rows.forEach(({ element }, i) => {
    const group = element.parentElement;
    numbers.set(group, (numbers.get(group) || 0) + shown[i]);
  });
  for (const [group, number] of numbers) {
    group.hidden = number === 0;
    group.style.containIntrinsicHeight = `${number * ROW_HEIGHT}px`;
  }
}

function applyFilter() {
  const filter = currentFilter();
  const shown = rows.map((row) => passes(row, filter));
  rows.forEach((row, i) => { if (row.element.hidden === shown[i]) row.element.hidden = !shown[i]; });
  sizeGroups(shown);
  const number = shown.filter(Boolean).length;
  byId("shown").textContent = `${number} of ${rows.length}`;
  byId("none").hidden = number > 0;
  timeline.shown = number < rows.length ? shown : null;
  drawTimelineLater();
  filterToAddress();
}

// The filter is part of the address, so that a view can be shared.
const filterToAddress = later(() => {
  const params = new URLSearchParams();
  const { levels, selects } = currentFilter();
  const text = form.elements.text.value.trim();
  const boxes = [...form.querySelectorAll("input[name=severity]")];
  if (text) params.set("text", text);
  for (const [name, value] of selects) params.set(name, value);
  if (levels.size < boxes.length) params.set("severity", [...levels].join(","));
  const hash = String(params);
  const address = hash ? `#?${hash}` : location.pathname + location.search;
  if (hash || location.hash.startsWith("#?")) history.replaceState(null, "", address);
});

function filterFromAddress() {
  if (!location.hash.startsWith("#?")) return;
  const params = new URLSearchParams(location.hash.slice(2));
  form.elements.text.value = params.get("text") || "";
  for (const name of SELECTS) {
    const select = form.elements[name];
    if ([...select.options].some((option) => option.value === params.get(name))) select.value = params.get(name);
  }
  const levels = params.has("severity") ? params.get("severity").split(",") : null;
  for (const box of form.querySelectorAll("input[name=severity]")) box.checked = !levels || levels.includes(box.value);
}

function goTo(id) {
  if (location.hash === `#${id}`) reveal();
  else location.hash = id;
}

// Opens the target of the address; resets the filter if it hides that finding.
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
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#?") && form) {
    filterFromAddress();
    applyFilter();
  } else {
    reveal();
  }
});
window.addEventListener("beforeprint", () => openForPrint(true));
window.addEventListener("afterprint", () => openForPrint(false));
redraw();
reveal();
