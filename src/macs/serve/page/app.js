// The page: images go to the service in requests that it accepts, and its answers become verdicts, which the page
// judges anew whenever the threshold moves. It loads nothing from elsewhere and keeps nothing after it is closed.
"use strict";
const byId = (id) => document.getElementById(id);
const STEPS = 1000; // of the slider
const BINS = 40;
const SHOWN = 60; // results at first, and with every "more"
const THUMBNAIL = 240; // pixels
const OVERHEAD = 1024; // bytes of a multipart body per image, beside the image and its name
const PATIENCE = 8; // times that a busy service is asked again

const results = []; // { file, name, state: "waiting" | "answered" | "failed", answer, reason, again, thumbnail, card }
let detector = null;
let threshold = null; // null: as calibrated
let presets = []; // thresholds of the buttons
let domain = [0, 1];
let show = "all";
let shown = SHOWN;
let key = "";
let sending = false;

// ---- numbers as people read them

// Four digits, and as many more as it takes to tell a confidence from the threshold that it is compared with.
function short(value, beside = null) {
  if (value === null) return "none";
  for (let digits = 4; digits < 17; digits++) {
    const text = rounded(value, digits);
    if (beside === null || value === beside || text !== short(beside)) return text;
  }
  return String(value);
}

function rounded(value, digits) {
  const text = String(Number(value.toPrecision(digits)));
  return text === "1" && value < 1 ? "0." + "9".repeat(digits) : text; // 0.99999 must not read as 1
}

function percent(share) {
  if (share === 0 || share === 1) return 100 * share + "%";
  if (share < 0.005) return "<1%";
  if (share > 0.995) return ">99%";
  return Math.round(100 * share) + "%";
}

const count = (number, one, many = one + "s") => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// ---- the detector

async function ask(address, options = {}) {
  const headers = key ? { "X-API-Key": key } : {};
  const response = await fetch(address, { ...options, headers, cache: "no-store" });
  let body = null;
  try {
    body = await response.json();
  } catch {
    // Not from the service itself, but from a proxy in front of it: the status has to do.
  }
  return { response, body };
}

async function start() {
  const { response, body } = await ask("v1/detector").catch(() => ({ response: null, body: null }));
  if (response?.status === 401) return askForKey();
  if (!response?.ok || !body) {
    say(body?.error ?? "The service does not answer; load the page again in a moment.");
    return;
  }
  detector = body;
  byId("key-form").hidden = true;
  describe();
  rescale();
  update();
  byId("slider").disabled = false;
  send();
}

function askForKey() {
  byId("key-form").hidden = false;
  byId("key").select();
  byId("key").focus();
  say(key ? "That API key was not accepted." : "This service asks for an API key.");
}

function describe() {
  const { classes, calibration, keep } = detector;
  const known = classes.slice(0, 10).join(", ") + (classes.length > 10 ? ` and ${classes.length - 10} more` : "");
  byId("about").textContent =
    `This classifier knows ${count(classes.length, "class", "classes")}: ${known}. ` +
    "Shown anything else, it still answers with one of them. Where its confidence falls below a threshold, do not believe it.";
  const facts = [
    ["network", detector.network],
    ["confidence", detector.score],
    ["calibrated on", count(calibration.images, "image")],
    ["keeps", `${percent(keep)} of known images`],
  ];
  byId("facts").replaceChildren(
    ...facts.map(([name, value]) => {
      const [row, term, words] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
      term.textContent = name;
      words.textContent = value;
      row.append(term, words);
      return row;
    }),
  );
  byId("facts").hidden = false;
  byId("promise").textContent =
    `The threshold was found on ${count(calibration.images, "image")} that the classifier knows, so that ` +
    `${percent(keep)} of new ones like them reach it${detector.thresholds.length > 1 ? " within each class" : ""}.`;
  byId("version").prepend(`macs ${detector.version} · detector ${detector.checksum.slice(0, 12)} · `);
  const others = calibration.confidences.length ? [0.99, 0.95, 0.9].filter((share) => share !== keep) : [];
  presets = [null, ...others.map(keeping)];
  byId("presets").replaceChildren(
    ...presets.map((value, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = index ? `keep ${percent(others[index - 1])}` : "calibrated";
      button.addEventListener("click", () => move(value));
      return button;
    }),
  );
}

// The quantiles are at equal steps from the smallest confidence to the largest.
function keeping(share) {
  const quantiles = detector.calibration.confidences;
  const place = (1 - share) * (quantiles.length - 1);
  const below = Math.floor(place);
  return quantiles[below] + (place - below) * ((quantiles[below + 1] ?? quantiles[below]) - quantiles[below]);
}

function keptBy(value) {
  const quantiles = detector.calibration.confidences;
  if (!quantiles.length) return null;
  const first = quantiles.findIndex((quantile) => quantile >= value);
  if (first < 1) return first === 0 ? 1 : 0;
  const part = (value - quantiles[first - 1]) / (quantiles[first] - quantiles[first - 1]);
  return 1 - (first - 1 + part) / (quantiles.length - 1);
}

// ---- verdicts

const limitOf = (answer) => threshold ?? answer.threshold;

function verdict(result) {
  if (result.state !== "answered") return result.state;
  if (threshold === null) return result.answer.is_ood ? "unknown" : "known";
  return result.answer.confidence !== null && result.answer.confidence >= threshold ? "known" : "unknown";
}

function move(value) {
  threshold = value;
  update();
}

function rescale() {
  const values = [...detector.calibration.confidences, ...detector.thresholds];
  for (const { answer } of results) if (typeof answer?.confidence === "number") values.push(answer.confidence);
  const low = values.reduce((a, b) => Math.min(a, b));
  const high = values.reduce((a, b) => Math.max(a, b));
  domain = low >= 0 && high <= 1 ? [0, 1] : [low, high > low ? high : low + 1];
}

const place = (value) => Math.min(Math.max((value - domain[0]) / (domain[1] - domain[0]), 0), 1);

// ---- drawing

function update() {
  const counts = { all: results.length, known: 0, unknown: 0, failed: 0, waiting: 0 };
  for (const result of results) counts[verdict(result)] += 1;
  for (const button of byId("filters").children) {
    button.querySelector("b").textContent = counts[button.dataset.show].toLocaleString("en");
    button.setAttribute("aria-pressed", String(button.dataset.show === show));
  }
  byId("empty").hidden = results.length > 0;
  byId("drop").classList.toggle("small", results.length > 0);
  byId("clear").disabled = results.length === 0;
  byId("download").disabled = counts.known + counts.unknown + counts.failed === 0;
  byId("again").hidden = sending || !results.some((result) => result.again);
  if (detector) drawThreshold(counts);
  drawList();
}

function drawThreshold(counts) {
  const { thresholds } = detector;
  const perClass = threshold === null && thresholds.length > 1;
  const middle = threshold ?? [...thresholds].sort((a, b) => a - b)[thresholds.length >> 1];
  byId("value").textContent = perClass ? "one per class" : short(middle);
  const kept = threshold === null ? detector.keep : keptBy(threshold);
  const words = kept === null ? "" : `keeps about ${percent(kept)} of calibration images`;
  byId("kept").textContent = words;
  const slider = byId("slider");
  slider.value = String(Math.round(STEPS * place(middle)));
  const verdicts = results.length ? `${counts.known} known, ${counts.unknown} unknown` : "";
  slider.setAttribute("aria-valuetext", [byId("value").textContent, words, verdicts].filter(Boolean).join("; "));
  byId("line").style.left = 100 * place(middle) + "%";
  byId("line").hidden = perClass;
  for (const [index, button] of [...byId("presets").children].entries()) {
    button.setAttribute("aria-pressed", String(threshold === presets[index]));
  }
  [byId("low").textContent, byId("high").textContent] = domain.map(short);
  drawHistogram(counts);
}

function binned(values) {
  const bins = new Array(BINS).fill(0);
  for (const value of values) bins[Math.min(Math.floor(BINS * place(value)), BINS - 1)] += 1;
  return bins;
}

// Heights follow the square root of the number, so that a single image beside hundreds can still be seen.
function columns(parent, bins, most, kind) {
  parent.replaceChildren(
    ...bins.flatMap((number, index) => {
      if (!number) return [];
      const bar = document.createElement("i");
      bar.className = kind;
      bar.style.left = (100 * index) / BINS + "%";
      bar.style.width = 100 / BINS + "%";
      bar.style.height = 100 * Math.sqrt(number / most) + "%";
      return [bar];
    }),
  );
}

function drawHistogram(counts) {
  const fine = Array.from({ length: 2000 }, (_, index) => keeping((index + 0.5) / 2000));
  const calibration = detector.calibration.confidences.length ? binned(fine) : new Array(BINS).fill(0);
  columns(byId("backdrop"), calibration, Math.max(...calibration, 1), "calibration");
  const judged = { known: [], unknown: [] };
  for (const result of results) {
    const list = judged[verdict(result)];
    if (list && result.answer.confidence !== null) list.push(result.answer.confidence);
  }
  const [known, unknown] = [binned(judged.known), binned(judged.unknown)];
  const most = Math.max(...known.map((number, index) => number + unknown[index]), 1);
  // In the bin of the threshold, unknown images stand on known ones.
  columns(byId("bars"), known.map((number, index) => number + unknown[index]), most, "unknown");
  const below = document.createElement("div");
  columns(below, known, most, "known");
  byId("bars").append(...below.children);
  const all = [...judged.known, ...judged.unknown].sort((a, b) => a - b);
  const range = all.length ? `from ${short(all[0])} to ${short(all[all.length - 1])}` : "";
  byId("plot").setAttribute(
    "aria-label",
    all.length
      ? `Histogram of ${count(all.length, "confidence")} ${range}: ${counts.known} known, ${counts.unknown} unknown`
      : "Histogram of confidences: no images yet",
  );
}

function drawList() {
  const chosen = results.filter((result) => show === "all" || verdict(result) === show);
  const now = chosen.slice(0, shown);
  const list = byId("list");
  for (const result of now) {
    result.card ??= byId("card").content.firstElementChild.cloneNode(true);
    draw(result);
  }
  // Cards stay in the document where they can, so that the focus and the reader's place do.
  const wanted = now.map((result) => result.card);
  if (wanted.length !== list.children.length || wanted.some((card, index) => card !== list.children[index])) {
    list.replaceChildren(...wanted);
  }
  byId("more").hidden = chosen.length <= shown;
  byId("more").textContent = `Show ${Math.min(SHOWN, chosen.length - shown)} more of ${chosen.length.toLocaleString("en")}`;
}

const WORDS = { known: "Known", unknown: "Unknown", failed: "No answer", waiting: "Waiting" };

function draw(result) {
  const { card, answer } = result;
  const state = verdict(result);
  const part = (selector) => card.querySelector(selector);
  card.className = `result ${state}`;
  part(".verdict span").textContent = WORDS[state];
  part(".name bdi").textContent = result.name;
  part(".name").title = result.name;
  part(".kind").textContent = result.name.includes(".") ? result.name.split(".").pop().slice(0, 5) : "";
  const image = part("img");
  if (result.thumbnail && image.src !== result.thumbnail) image.src = result.thumbnail;
  image.hidden = !result.thumbnail;
  part(".meter").hidden = !answer;
  part(".looks").textContent = state === "unknown" ? "resembles " : "";
  part(".class bdi").textContent = answer ? answer.class : (result.reason ?? "");
  const sign = state === "known" ? "≥" : "<";
  const limit = answer ? limitOf(answer) : null;
  part(".confidence").textContent = answer ? `confidence ${short(answer.confidence, limit)} ${sign} ${short(limit)}` : "";
  part(".p").textContent = answer && answer.p_value !== null ? `p-value ${Number(answer.p_value.toPrecision(2))}` : "";
  if (!answer) return;
  part(".fill").style.width = 100 * place(answer.confidence ?? domain[0]) + "%";
  part(".limit").style.left = 100 * place(limitOf(answer)) + "%";
}

// A small picture of each image, made one after another: hundreds of photographs would not fit into memory as they are.
let thumbnails = Promise.resolve();
function picture(result) {
  thumbnails = thumbnails.then(async () => {
    try {
      const bitmap = await createImageBitmap(result.file);
      const scale = Math.min(1, THUMBNAIL / Math.max(bitmap.width, bitmap.height));
      const canvas = document.createElement("canvas");
      canvas.width = Math.max(1, Math.round(scale * bitmap.width));
      canvas.height = Math.max(1, Math.round(scale * bitmap.height));
      canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      bitmap.close();
      const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
      if (!results.includes(result)) return;
      result.thumbnail = URL.createObjectURL(blob);
      if (result.card) draw(result);
    } catch {
      // The browser cannot show it; the service may still be able to read it.
    }
  });
}

// ---- asking the service

function say(words) {
  byId("status").textContent = words;
}

function add(files) {
  const fresh = [...files].map((file) => ({ file, name: file.name || "pasted image", state: "waiting" }));
  if (!fresh.length) return say("There was no image in that.");
  results.unshift(...fresh);
  fresh.forEach(picture);
  update();
  send();
}

// As many waiting images as one request may hold; one that could never be sent gets its reason at once.
function nextRequest() {
  const { images, bytes } = detector.limits;
  const chosen = [];
  let size = 0;
  for (const result of results) {
    if (result.state !== "waiting") continue;
    const cost = result.file.size + OVERHEAD + 3 * result.name.length;
    if (cost > bytes) fail(result, `It is larger than the ${Math.floor(bytes / 1e6)} MB that this service accepts.`);
    else if (chosen.length === images || size + cost > bytes) break;
    else {
      chosen.push(result);
      size += cost;
    }
  }
  return chosen;
}

function fail(result, reason, again = false) {
  Object.assign(result, { state: "failed", reason, again });
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

async function send() {
  if (sending || !detector) return;
  sending = true;
  for (let chosen = nextRequest(); chosen.length; chosen = nextRequest()) {
    report();
    await request(chosen);
    if (!detector) break;
    rescale();
    update();
  }
  sending = false;
  report();
  update();
}

async function request(chosen) {
  const form = new FormData();
  for (const { file, name } of chosen) form.append("images", file, name);
  for (let attempt = 0; ; attempt++) {
    let answered;
    try {
      answered = await ask("v1/predict", { method: "POST", body: form });
    } catch {
      // Also where a file was moved or changed since it was chosen, which a single image tells apart.
      if (chosen.length > 1) return halves(chosen);
      return chosen.forEach((result) => fail(result, "It could not be sent: the service did not answer.", true));
    }
    const { response, body } = answered;
    if (response.ok && body?.images?.length === chosen.length) {
      return chosen.forEach((result, index) => receive(result, body.images[index]));
    }
    if (response.status === 401) {
      detector = null;
      return askForKey();
    }
    if (response.status === 413 && chosen.length > 1) return halves(chosen);
    if ([429, 503].includes(response.status) && attempt < PATIENCE) {
      say("The service is busy; the page asks again in a moment.");
      await pause(Math.min(Number(response.headers.get("Retry-After")) || 1, 10));
      continue;
    }
    const busy = response.status === 429 || response.status >= 500;
    return chosen.forEach((result) => fail(result, body?.error ?? `The service answered with status ${response.status}.`, busy));
  }
}

async function halves(chosen) {
  const half = chosen.length >> 1;
  await request(chosen.slice(0, half));
  if (detector) await request(chosen.slice(half));
}

function receive(result, answer) {
  if (answer.reason !== undefined) return fail(result, answer.reason);
  Object.assign(result, { state: "answered", answer });
}

function report() {
  const waiting = results.filter((result) => result.state === "waiting").length;
  const progress = byId("progress");
  progress.hidden = !waiting;
  progress.max = results.length || 1;
  progress.value = results.length - waiting;
  if (!detector) return;
  if (waiting) return say(`Asking about ${count(results.length, "image")}; ${waiting.toLocaleString("en")} to go.`);
  const counts = { known: 0, unknown: 0, failed: 0 };
  for (const result of results) counts[verdict(result)] += 1;
  const failed = counts.failed ? `, ${counts.failed} without answer` : "";
  say(results.length ? `${count(results.length, "image")}: ${counts.known} known, ${counts.unknown} unknown${failed}.` : "");
}

// ---- the verdicts as CSV, in the columns of `macs predict` and the threshold

function csv() {
  const cell = (value) => {
    const hex = (control) => "\\x" + control.charCodeAt(0).toString(16).padStart(2, "0");
    const text = value === null || value === undefined ? "" : String(value).replace(/[\0-\x1f\x7f-\x9f]/g, hex);
    const formula = typeof value === "string" && /^[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text);
    const safe = formula ? "'" + text : text;
    return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const rows = [["path", "index", "class", "confidence", "p_value", "threshold", "is_ood", "reason"]];
  for (const result of results) {
    const { answer, name, state, reason } = result;
    if (state === "answered") {
      const { index, confidence, p_value } = answer;
      rows.push([name, index, answer.class, confidence, p_value, limitOf(answer), verdict(result) === "unknown", ""]);
    } else if (state === "failed") rows.push([name, "", "", "", "", "", "", reason]);
  }
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "verdicts.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// ---- files that are dropped, pasted or chosen

const entriesOf = (reader) => new Promise((done) => reader.readEntries(done, () => done([])));

async function filesIn(entry) {
  if (entry.isFile) return [await new Promise((done) => entry.file(done, () => done(null)))].filter(Boolean);
  const found = [];
  const reader = entry.createReader();
  for (let some = await entriesOf(reader); some.length; some = await entriesOf(reader)) {
    for (const inner of some) if (!inner.name.startsWith(".")) found.push(...(await filesIn(inner)));
  }
  return found;
}

async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files];
  return (await Promise.all(entries.map(filesIn))).flat();
}

let depth = 0; // dragging over an inner element enters it before it leaves the outer one
const highlight = (change) => {
  depth = Math.max(0, change === 0 ? 0 : depth + change);
  byId("drop").classList.toggle("over", depth > 0);
};
addEventListener("dragenter", () => highlight(+1));
addEventListener("dragleave", () => highlight(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  highlight(0);
  dropped(event.dataTransfer).then(add);
});
addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) add(event.clipboardData.files);
});
for (const id of ["files", "camera"]) {
  byId(id).addEventListener("change", (event) => {
    add(event.target.files);
    event.target.value = ""; // so that the same file can be chosen again
  });
}
byId("slider").addEventListener("input", (event) => {
  move(domain[0] + (Number(event.target.value) / STEPS) * (domain[1] - domain[0]));
});
byId("filters").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  show = button.dataset.show;
  shown = SHOWN;
  update();
});
byId("more").addEventListener("click", () => {
  const next = shown;
  shown += SHOWN;
  update();
  const card = byId("list").children[next];
  card.tabIndex = -1;
  card.focus();
});
byId("download").addEventListener("click", download);
byId("again").addEventListener("click", () => {
  for (const result of results) if (result.again) Object.assign(result, { state: "waiting", again: false, reason: "" });
  update();
  send();
});
byId("clear").addEventListener("click", () => {
  for (const result of results) if (result.thumbnail) URL.revokeObjectURL(result.thumbnail);
  results.length = 0;
  shown = SHOWN;
  update();
  say("The list is empty.");
  byId("files").focus();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value.trim();
  start();
});
update();
start();
