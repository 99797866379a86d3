// What the page of `dovetail watch` is made of: elements, figures as text, and charts.  console.js puts them together.
// Whatever comes from a record is set as text, never as markup.
"use strict";

// ------------------------------------------------------------------------------------------------ elements

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function s(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// ------------------------------------------------------------------------------------------------- figures

function short(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "s") return seconds(value);
  if (unit === "%") return `${three(Math.round(value * 1000) / 10)} %`;
  if (unit === "B") return scaled(value, [[1e12, " TB"], [1e9, " GB"], [1e6, " MB"], [1e3, " kB"]], " B");
  return scaled(value, [[1e9, " G"], [1e6, " M"], [1e4, " k", 1e3]], "");
}

function scaled(value, steps, none) {
  for (const [from, name, by] of steps) {
    if (Math.abs(value) >= from) return `${three(value / (by || from))}${name}`;
  }
  return `${three(value)}${none}`;
}

function three(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(Math.round(value * 1e6) / 1e6)) return Math.round(value).toLocaleString("en");
  return size >= 10 ? value.toFixed(1) : size >= 0.005 ? value.toFixed(2) : value === 0 ? "0" : value.toPrecision(1);
}

function seconds(value) {
  const size = Math.abs(value);
  if (size >= 172800) return `${three(value / 86400)} d`;
  if (size >= 7200) return `${three(value / 3600)} h`;
  if (size >= 120) return `${three(value / 60)} min`;
  return size >= 1 || value === 0 ? `${three(value)} s` : `${three(value * 1000)} ms`;
}

/** A length of time as one says it: 4 min, not 4.43. */
function about(value) {
  const [size, unit] = value < 120 ? [1, "s"] : value < 7200 ? [60, "min"] : value < 172800 ? [3600, "h"] : [86400, "d"];
  return `${Math.floor(Math.max(0, value) / size)} ${unit}`;
}

const ago = (time, now) => (now - time < 2 ? "just now" : `${about(now - time)} ago`);

function clock(time, span) {
  const date = new Date(time * 1000);
  if (span > 172800) return date.toLocaleDateString("en", { day: "numeric", month: "short" });
  const two = (number) => String(number).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}${span <= 1800 ? ":" + two(date.getSeconds()) : ""}`;
}

// -------------------------------------------------------------------------------------------------- charts

const known = (values) => (values || []).filter((value) => value !== null && value !== undefined);

function ticks(top, unit) {
  const step = 10 ** Math.floor(Math.log10(top / 3));
  // Minutes, hours and days are no powers of ten.
  const steps = unit === "s" && top > 120 ? [30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800, 2592000] : [1, 2, 5, 10].map((by) => by * step);
  const best = steps.find((one) => top / one <= 4) || top;
  const found = [];
  for (let value = 0; value <= top * 1.0001; value += best) found.push(value);
  return found;
}

/** Runs of neighbouring points that have values; a pause of a query is a gap in its lines. */
function pieces(times, values) {
  const gaps = times.slice(1).map((time, at) => time - times[at]).sort((a, b) => a - b);
  const usual = gaps.length ? gaps[Math.floor(gaps.length / 2)] : 0;
  const far = Math.max(usual * 5, 15);
  const found = [];
  let piece = [];
  times.forEach((time, at) => {
    const value = values[at];
    if (value === null || value === undefined || (piece.length && time - piece[piece.length - 1][0] > far)) {
      if (piece.length) found.push(piece);
      piece = [];
    }
    if (value !== null && value !== undefined) piece.push([time, value]);
  });
  if (piece.length) found.push(piece);
  return found;
}

/**
 * A chart: `lines` of {name, values, colour}, or areas on top of each other (`stacked`), a `band` of two columns, a
 * `goal`.  Shows the values under the pointer in its key, and the last ones otherwise.
 */
function chart(id, title, text, data, options) {
  const lines = options.lines.filter((line) => known(line.values).length);
  const box = h("section", { class: "chart", id: `chart-${id}` }, h("h2", {}, title), h("p", {}, text));
  if (!lines.length) {
    box.append(h("div", { class: "none" }, options.missing || "no figures"));
    return box;
  }
  const unit = options.unit || "";
  const sums = options.stacked ? data.times.map((_, at) => lines.reduce((sum, line) => sum + (line.values[at] || 0), 0)) : null;
  const all = sums || lines.flatMap((line) => known(line.values));
  if (options.band) all.push(...known(options.band[1]));
  if (options.goal) all.push(options.goal);
  const peak = all.reduce((most, value) => Math.max(most, value), 0);
  const top = options.top || (peak > 0 ? peak * 1.06 : 1);
  const width = Math.max(260, options.width || 400), height = 168, left = 56, bottom = 20, right = 6;
  const x = (time) => left + ((time - data.from) / (data.until - data.from || 1)) * (width - left - right);
  const y = (value) => height - bottom - (Math.min(value, top) / top) * (height - bottom - 8);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${lines.map((line) => `${line.name} ${short(known(line.values).at(-1), unit)}`).join(", ")}` });
  for (const value of ticks(top, unit)) {
    svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(s("text", { class: "axis", x: left - 7, y: y(value) + 4, "text-anchor": "end" }, short(value, unit)));
  }
  const span = data.until - data.from, marks = width > 360 && span > 1800 ? 4 : 2;
  for (let at = 0; at <= marks; at += 1) {
    const time = data.from + (span * at) / marks;
    const anchor = at === 0 ? "start" : at === marks ? "end" : "middle";
    svg.append(s("text", { class: "axis", x: x(time), y: height - 4, "text-anchor": anchor }, clock(time, span)));
  }
  if (options.band) {
    const [low, high] = options.band;
    const upper = pieces(data.times, high), lower = pieces(data.times, low);
    upper.forEach((piece, at) => {
      const back = (lower[at] || []).slice().reverse();
      if (back.length) svg.append(s("polygon", { class: `band f${options.bandColour || 1}`, points: [...piece, ...back].map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
    });
  }
  if (options.stacked) {
    const below = data.times.map(() => 0);
    for (const line of lines) {
      const upper = line.values.map((value, at) => below[at] + (value || 0));
      for (const piece of pieces(data.times, upper)) {
        const index = new Map(data.times.map((time, at) => [time, at]));
        const back = piece.map(([time]) => [time, below[index.get(time)]]).reverse();
        const edge = piece.length > 1 ? piece : [[piece[0][0] - span / 400, piece[0][1]], [piece[0][0] + span / 400, piece[0][1]]];
        const floor = piece.length > 1 ? back : [[edge[1][0], back[0][1]], [edge[0][0], back[0][1]]];
        svg.append(s("polygon", { class: `area f${line.colour}`, points: [...edge, ...floor].map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
      }
      upper.forEach((value, at) => { below[at] = value; });
    }
  } else {
    for (const line of lines) {
      for (const piece of pieces(data.times, line.values)) {
        if (piece.length === 1) svg.append(s("circle", { class: `dot f${line.colour}`, cx: x(piece[0][0]), cy: y(piece[0][1]), r: 2.2 }));
        else svg.append(s("polyline", { class: `line s${line.colour}`, points: piece.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
      }
    }
  }
  if (options.goal) svg.append(s("line", { class: "goal", x1: left, x2: width - right, y1: y(options.goal), y2: y(options.goal) }));
  const cross = s("line", { class: "cross", y1: 6, y2: height - bottom, visibility: "hidden" });
  svg.append(cross);
  const legend = h("div", { class: "key" });
  const values = [];
  const moment = h("b", {});
  for (const line of lines) {
    const value = h("b", {});
    values.push(value);
    legend.append(h("span", {}, h("i", { class: `b${line.colour}` }), line.name, value));
  }
  legend.append(h("span", {}, moment));
  const show = (at) => {
    lines.forEach((line, number) => { values[number].textContent = short(at === null ? known(line.values).at(-1) : line.values[at], unit); });
    moment.textContent = at === null ? "" : clock(data.times[at], span);
    cross.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) { cross.setAttribute("x1", x(data.times[at])); cross.setAttribute("x2", x(data.times[at])); }
  };
  svg.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const time = data.from + (((event.clientX - place.left) / place.width) * width - left) / (width - left - right) * span;
    let best = 0;
    data.times.forEach((one, at) => { if (Math.abs(one - time) < Math.abs(data.times[best] - time)) best = at; });
    hovering = true;
    show(best);
  });
  svg.addEventListener("pointerleave", () => { hovering = false; show(null); });
  show(null);
  box.append(svg, legend);
  return box;
}

function course(points) {
  const svg = s("svg", { class: "course", viewBox: "0 0 120 30", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length > 1) {
    const peak = Math.max(...points.map((point) => point[1]), 1e-9);
    const first = points[0][0], span = points.at(-1)[0] - first || 1;
    const place = ([time, value]) => `${(2 + ((time - first) / span) * 116).toFixed(1)},${(28 - (value / peak) * 25).toFixed(1)}`;
    svg.append(s("polygon", { class: "band f1", points: `2,29 ${points.map(place).join(" ")} 118,29` }));
    svg.append(s("polyline", { class: "line s1", points: points.map(place).join(" ") }));
  }
  return svg;
}
