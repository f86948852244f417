// The threshold: one slider, and everything on the page that depends on it.
"use strict";
const steps = JSON.parse(document.getElementById("steps").textContent);
const slider = document.getElementById("slider");
const readout = document.getElementById("value");
const all = (selector) => [...document.querySelectorAll(selector)];

// The same as `percent` in page.py: only exactly 0 and 1 read as 0% and 100%.
function percent(share) {
  if (share === 0 || share === 1) return 100 * share + "%";
  if (share < 0.0005) return "<0.1%";
  if (share > 0.9995) return ">99.9%";
  return (100 * share).toFixed(1) + "%";
}

function update() {
  const step = Number(slider.value);
  const value = steps.values[step];
  const kept = steps.kept.map((counts, set) => counts[step] / steps.images[set]);
  readout.textContent = String(value);

  const spoken = [];
  for (const row of all(".bar")) {
    const set = Number(row.dataset.set);
    const share = set === 0 ? kept[0] : 1 - kept[set];
    row.querySelector(".share").textContent = percent(share);
    row.querySelector(".track i").style.width = 100 * share + "%";
    spoken.push(`${row.querySelector("bdi").textContent} ${percent(share)} ${set === 0 ? "kept" : "caught"}`);
  }
  slider.setAttribute("aria-valuetext", `${value}: ${spoken.join(", ")}`);

  const [low, high] = steps.axis;
  const places = {
    step: step / Math.max(steps.values.length - 1, 1),
    value: Math.min(Math.max((value - low) / (high - low), 0), 1),
  };
  for (const marker of all(".marker")) marker.style.left = 100 * places[marker.dataset.at] + "%";
  for (const dot of all("[data-dot]")) {
    dot.setAttribute("d", `M${1000 * (1 - kept[0])} ${1000 * kept[Number(dot.dataset.dot)]}h0`);
  }
  for (const picture of all(".picture")) {
    const keeps = Number(picture.dataset.confidence) >= value;
    const state = picture.querySelector(".state");
    state.textContent = keeps ? "kept" : "flagged";
    state.classList.toggle("wrong", keeps !== (picture.dataset.known === "yes"));
  }
}

slider.addEventListener("input", update);
for (const button of all("[data-step]")) {
  button.addEventListener("click", () => {
    slider.value = button.dataset.step;
    update();
  });
}
addEventListener("beforeprint", () => all("details").forEach((details) => (details.open = true)));
update();
