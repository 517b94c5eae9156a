"use strict";
// Values under the pointer, or under the arrow keys; and groups that are put away by their buttons. Without it the page is whole.
(() => {
  const data = document.getElementById("curves");
  const curves = data ? JSON.parse(data.textContent) : {};
  const away = new Set();
  const shown = (value) => (value === null ? "-" : Number(value.toPrecision(5)).toLocaleString("en-US", { maximumSignificantDigits: 5 }));

  for (const button of document.querySelectorAll("button[data-group]")) {
    button.disabled = false;
    button.addEventListener("click", () => {
      const group = button.dataset.group;
      const isShown = away.has(group);
      if (isShown) away.delete(group); else away.add(group);
      button.setAttribute("aria-pressed", String(isShown));
      for (const part of document.querySelectorAll(`g[data-group="${group}"]`)) part.classList.toggle("away", !isShown);
    });
  }

  for (const svg of document.querySelectorAll("svg.chart")) {
    const curve = curves[svg.dataset.chart];
    if (!curve) continue;
    const [low, high, left, right] = svg.dataset.x.split(" ").map(Number);
    const tip = svg.parentElement.querySelector(".tip");
    const cursor = svg.querySelector(".cursor");
    let at = null;

    // Of a group with a mean that one alone: the seeds' own values are in the tables.
    const hasMean = (line) => curve.lines.some((other) => other.group === line.group && !other.faint);
    const visible = () => curve.lines.filter((line) => !away.has(String(line.group)) && !(line.faint && hasMean(line)));
    const nearest = (points, x) => points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    const xs = () => [...new Set(visible().flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);

    function hide() { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); at = null; }
    function show(x) {
      const lines = visible().filter((line) => line.points.length);
      if (!lines.length) return hide();
      at = nearest(lines.flatMap((line) => line.points), x)[0];
      const pixel = left + ((at - low) / (high - low)) * (right - left);
      cursor.setAttribute("x1", pixel); cursor.setAttribute("x2", pixel); cursor.setAttribute("visibility", "visible");
      const rows = lines.map((line) => [line, nearest(line.points, at)]).filter(([, point]) => point[1] !== null);
      rows.sort((a, b) => b[1][1] - a[1][1]);
      tip.replaceChildren(Object.assign(document.createElement("strong"), { textContent: `${curve.x} ${shown(at)}` }));
      for (const [line, point] of rows.slice(0, 12)) {
        const row = document.createElement("div");
        row.className = `c${line.group % 8}`;
        const name = Object.assign(document.createElement("span"), { textContent: line.name });
        const value = Object.assign(document.createElement("b"), { textContent: shown(point[1]) });
        row.append(document.createElement("i"), name, value);
        tip.append(row);
      }
      tip.hidden = false;
      const box = svg.getBoundingClientRect(), figure = svg.parentElement.getBoundingClientRect();
      const place = box.left - figure.left + (pixel / svg.viewBox.baseVal.width) * box.width;
      const width = tip.offsetWidth;
      tip.style.left = `${Math.max(4, place + 12 + width < figure.width ? place + 12 : Math.max(4, place - 12 - width))}px`;
      tip.style.top = `${box.bottom - figure.top - 4}px`;
    }

    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const pixel = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      show(low + ((pixel - left) / (right - left)) * (high - low));
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const all = xs();
      if (event.key === "Escape") return hide();
      if (!all.length || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const here = at === null ? -1 : all.indexOf(at);
      const next = { ArrowLeft: Math.max(0, here - 1), ArrowRight: Math.min(all.length - 1, here + 1), Home: 0, End: all.length - 1 };
      show(all[next[event.key]]);
    });
  }
})();
