// The page of `dovetail watch`.  Reads /api/runs and /api/run again and again, and draws.
// Whatever comes from a record is set as text, never as markup.
"use strict";

const RANGES = ["15m", "1h", "6h", "24h", "7d", "30d"];
const SPAN = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000 };
const STATUS = {
  running: "running", finished: "finished", stopped: "stopped", failed: "failed",
  unwatched: "no longer watched", gone: "failed: its process is gone",
};
const main = document.getElementById("main");

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

const ago = (time, now) => (now - time < 2 ? "just now" : `${seconds(Math.round(now - time))} ago`);

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

// ------------------------------------------------------------------------------------------------ all runs

const pill = (run) => h("span", { class: `pill ${run.status}` }, STATUS[run.status] || run.status);

function overview(answer) {
  document.title = "Dovetail watch";
  if (!answer.runs.length) {
    return [h("h1", {}, "Nothing has run yet"), h("p", { class: "quiet" }, "A stream of ", h("code", {}, "dovetail run job.yaml"),
      ", or of a program that calls ", h("code", {}, "dt.listen(spark)"), ", shows here as soon as it starts.")];
  }
  const columns = ["query", "rows in", "results", "micro-batch", "event to commit, p95", "rows held", "throttle", "recall", "rows in, 30 min"];
  const body = h("tbody");
  for (const run of answer.runs) {
    const figures = run.figures || {};
    const address = `#run=${run.id}`;
    const flags = run.advice.length ? h("span", { class: run.advice.every((one) => one.level === "note") ? "flag note" : "flag" }, run.advice[0].text) : null;
    const cell = (what, value, unit, per) => h("td", { class: value === null || value === undefined ? "num empty" : "num", "data-what": what }, short(value, unit), per && value !== null && value !== undefined ? h("span", { class: "unit" }, ` ${per}`) : null);
    body.append(h("tr", { onclick: () => { location.hash = address; }, "data-job": run.job },
      h("td", { class: "name" }, h("a", { href: address }, run.job),
        h("div", { class: "under" }, pill(run), run.mode === "batch" ? "batch job" : null,
          run.mode === "batch" && run.ended ? h("span", {}, `took ${seconds(run.ended - run.started)}`) : null,
          h("span", {}, run.status === "running" ? `for ${seconds(Math.round(answer.now - run.started))}` : ago(run.ended || run.seen, answer.now)),
          run.error ? h("span", { class: "said" }, run.error) : null, flags)),
      cell("rows in", figures.input_rate, "", "/s"), cell("results", figures.result_rate, "", "/s"),
      cell("micro-batch", figures.batch_seconds, "s"), cell("event to commit", figures.latency_p95, "s"),
      cell("rows held", figures.held_rows), cell("throttle", figures.throttle, "%"), cell("recall", figures.recall, "%"),
      h("td", { class: run.course.length > 1 ? "wide" : "wide empty" }, course(run.course))));
  }
  return [h("table", { class: "runs" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", {}, name)))), body)];
}

// ------------------------------------------------------------------------------------------------- one run

function facts(run, now) {
  const began = new Date(run.started * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  const parts = [run.mode === "batch" ? "batch job" : "streaming query", `since ${began}`];
  if (run.pid) parts.push(`process ${run.pid}${run.host ? ` on ${run.host}` : ""}`);
  if (run.ended) parts.push(`ended ${ago(run.ended, now)}`);
  else if (run.mode !== "batch") parts.push(`last micro-batch ${ago(run.seen, now)}`);
  return parts.join(" · ");
}

function warnings(run) {
  const list = h("ul", { class: "say", id: "warnings" });
  if (run.error) list.append(h("li", { class: "error" }, run.error));
  if (run.status === "gone") list.append(h("li", { class: "error" }, "Its process has gone without writing an end: it was killed, or the machine was."));
  for (const one of run.advice) {
    list.append(h("li", { class: one.level }, one.text[0].toUpperCase() + one.text.slice(1), ". ", h("code", {}, `docs/${one.page}`)));
  }
  return list.children.length ? list : null;
}

function tile(name, value, unit, under) {
  return h("div", { class: "tile" }, h("span", {}, name), h("b", { class: "num" }, short(value, unit)), under ? h("span", {}, under) : null);
}

function byInput(series, name) {
  const values = (series.inputs || {})[name] || {};
  return Object.keys(values).slice(0, 6).map((alias, at) => ({ name: alias, values: values[alias], colour: at + 1 }));
}

function details(answer, range) {
  const { run, series, total } = answer;
  document.title = `${run.job} · Dovetail watch`;
  const choice = h("div", { class: "ranges", role: "group", "aria-label": "time range" }, RANGES.map((one) =>
    h("button", { type: "button", "aria-pressed": String(one === range), onclick: () => { location.hash = `#run=${run.id}&range=${one}`; } }, one)));
  const parts = [h("div", { class: "head" }, h("h1", {}, run.job), pill(run), run.mode === "batch" ? null : choice), h("p", { class: "facts" }, facts(run, answer.now)), warnings(run)];
  if (total) parts.push(...(run.mode === "batch" ? [] : figures(answer, range)));
  else if (run.mode !== "batch") parts.push(h("p", { class: "quiet" }, "No micro-batch has ended in this time."));
  const counters = run.last && run.last.counters ? Object.entries(run.last.counters) : [];
  if (counters.length) {
    parts.push(h("h3", {}, run.mode === "batch" ? "What it counted" : `Counters of micro-batch ${run.last.batch ?? "?"}`));
    parts.push(h("dl", { class: "counters" }, counters.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value.toLocaleString("en", { maximumFractionDigits: 3 }))))));
  }
  if (run.plan) parts.push(h("h3", {}, "Plan"), h("pre", { class: "plan" }, run.plan));
  return parts;
}

function figures(answer, range) {
  const { run, series, total } = answer;
  const data = { times: series.time, until: answer.until, from: answer.until - SPAN[range] };
  if (run.started > data.from) data.from = Math.min(run.started, series.time[0]);
  // As wide as the grid of the style sheet makes a chart: text that is stretched reads badly.
  const room = Math.min(1440, document.documentElement.clientWidth) - (document.documentElement.clientWidth > 760 ? 40 : 24);
  const across = Math.max(1, Math.floor((room + 12) / 412));
  const width = (room - 12 * (across - 1)) / across - 30;
  const target = Number(run.target) > 0 ? Number(run.target) : null;
  const line = (name, key, colour) => ({ name, values: series[key], colour });
  const sheds = known(series.throttle).length > 0;
  const draw = (id, title, text, options) => chart(id, title, text, data, { width, ...options });
  const last = (key) => known(series[key]).at(-1);
  const tiles = h("div", { class: "tiles" },
    tile("rows in", last("input_rate"), "", "a second"), tile("results", last("result_rate"), "", "a second"),
    tile("micro-batch", total.seconds_median, "s", `median; longest ${short(total.seconds_longest, "s")}`),
    tile("event to commit", total.latency_p50, "s", `p50; p95 ${short(total.latency_p95, "s")}, p99 ${short(total.latency_p99, "s")}`),
    tile("rows held", last("held_rows"), "", short(last("held_bytes"), "B")),
    total.late === null ? null : tile("late rows", total.late, "", [total.early === null ? "" : `${short(total.early)} early`, total.evicted === null ? "" : `${short(total.evicted)} evicted`].filter(Boolean).join(", ")),
    sheds ? tile("throttle", last("throttle"), "%", "of the full work") : null,
    sheds ? tile("recall", last("recall"), "%", `${short(last("recall_low"), "%")} to ${short(last("recall_high"), "%")}`) : null);
  const charts = h("div", { class: "charts" },
    draw("rates", "Rates", "Rows that came in and results that came out, a second.", { lines: [line("in", "input_rate", 1), line("results", "result_rate", 2), line("written", "written_rate", 3)] }),
    draw("latency", "Event to commit", "Estimated: from the earliest, mean and latest event time of each micro-batch (of the first input) to its end.", {
      unit: "s", lines: [line("p99", "latency_p99", 2), line("p95", "latency_p95", 3), line("p50", "latency_p50", 1)], missing: "no input has a watermark, so Spark reports no event times" }),
    draw("lag", "Lag", "Age of the newest row and of the watermark when a micro-batch ends; the watermark's distance to the newest row.", {
      unit: "s", lines: [line("watermark", "watermark_lag", 3), line("newest row", "clock_lag", 1), line("between them", "lag", 6)], missing: "no input has a watermark" }),
    draw("duration", "Where a micro-batch's time goes", target ? `By Spark's own clock; the dashed line is the target of ${seconds(target)}.` : "By Spark's own clock. The join runs within “run”.", {
      unit: "s", stacked: true, goal: target, lines: [line("run", "part_work", 1), line("plan", "part_planning", 3), line("offsets", "part_offsets", 5), line("log", "part_wal", 4), line("commit", "part_commits", 2), line("other", "part_other", 6)] }),
    draw("kernel", "In the join's kernel", "All cells added up: on two cores it can be twice the time that passes.", { unit: "s", lines: [line("kernel", "kernel", 1), line("micro-batch", "seconds", 6)], missing: "no join of Dovetail in this query" }),
    sheds ? draw("throttle", "Throttle and recall", "Part of the full work that is done; results found, with the mean of the micro-batches' intervals.", {
      unit: "%", top: 1.05, band: [series.recall_low, series.recall_high], bandColour: 2, lines: [line("throttle", "throttle", 1), line("recall", "recall", 2)] }) : null,
    draw("state-rows", "State: rows by input", "Rows held because something may still match them.", { lines: byInput(series, "held_rows").length ? byInput(series, "held_rows") : [line("all inputs", "held_rows", 1)], missing: "this query keeps no state of a join" }),
    draw("state-bytes", "State: bytes by input", "What they take in the state store, as the join packs them.", { unit: "B", lines: byInput(series, "held_bytes").length ? byInput(series, "held_bytes") : [line("all inputs", "held_bytes", 1)], missing: "this query keeps no state of a join" }),
    draw("dropped", "Late, early, evicted", "Rows that came too late or too early and were dropped; rows that left the state.", { lines: [line("late", "late", 2), line("early", "early", 4), line("evicted", "evicted", 1)], missing: "the join counts none of these" }),
    known(series.behind).length ? draw("behind", "Unread", "Rows that the sources hold and the query has not read.", { lines: [line("unread", "behind", 2)] }) : null,
    known(series.skew).length ? draw("skew", "Skew", "Rows of the fullest cell beside the average; 1 is even.", { lines: [line("fullest / average", "skew", 1)] }) : null);
  return [tiles, charts];
}

// ----------------------------------------------------------------------------------------------- refreshing

let timer = 0, shown = "", hovering = false, turn = 0;

function asked() {
  const found = new URLSearchParams(location.hash.slice(1));
  const range = RANGES.includes(found.get("range")) ? found.get("range") : "15m";
  return /^\d+$/.test(found.get("run") || "") ? { run: found.get("run"), range } : { run: null, range };
}

function state(text, off) {
  const live = document.getElementById("live");
  live.replaceChildren(h("span", {}, text));
  live.classList.toggle("off", Boolean(off));
}

async function refresh() {
  clearTimeout(timer);
  const wanted = asked(), mine = (turn += 1);
  try {
    const response = await fetch(wanted.run ? `/api/run?id=${wanted.run}&range=${wanted.range}` : "/api/runs", { cache: "no-store" });
    if (mine !== turn) return;
    if (response.status === 401) throw new Error("the token is missing: open the address that was printed");
    if (response.status === 404 && wanted.run) { main.replaceChildren(h("p", { class: "quiet" }, "There is no such run any more. ", h("a", { href: "#" }, "All runs"))); return; }
    if (!response.ok) throw new Error(await response.text());
    const answer = await response.json();
    if (!(hovering && shown === location.hash)) {
      const scroll = shown === location.hash ? window.scrollY : 0;
      main.replaceChildren(...(wanted.run ? details(answer, wanted.range) : overview(answer)).filter(Boolean));
      window.scrollTo(0, scroll);
      shown = location.hash;
    }
    summary(wanted.run ? null : answer.runs);
    state(`updated ${clock(answer.now, 0)}`);
  } catch (error) {
    state(error.message === "Failed to fetch" ? "no answer from dovetail watch" : error.message, true);
  }
  timer = setTimeout(refresh, document.hidden ? 30000 : wanted.run && SPAN[wanted.range] > 21600 ? 15000 : 2000);
}

function summary(runs) {
  const place = document.getElementById("summary");
  if (!runs) { place.replaceChildren(h("a", { href: "#" }, "all queries")); return; }
  const count = (names) => runs.filter((run) => names.includes(run.status)).length;
  const failed = count(["failed", "gone"]);
  place.textContent = `${count(["running"])} running${failed ? `, ${failed} failed` : ""}`;
}

window.addEventListener("hashchange", () => { hovering = false; refresh(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
