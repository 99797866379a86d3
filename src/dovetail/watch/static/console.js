// The page of `dovetail watch`.  Reads /api/runs and /api/run again and again, and shows them with charts.js.
"use strict";

const RANGES = ["15m", "1h", "6h", "24h", "7d", "30d"];
const SPAN = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000 };
const STATUS = {
  running: "running", finished: "finished", stopped: "stopped", failed: "failed",
  unwatched: "no longer watched", gone: "failed: its process is gone",
};
const main = document.getElementById("main");

// ------------------------------------------------------------------------------------------------ all runs

const several = (count, one, more) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

/** A page of the docs: a link where the package knows their address. */
function page(name, docs) {
  const text = h("code", {}, `docs/${name}`);
  return docs ? h("a", { href: docs + name, target: "_blank", rel: "noopener noreferrer" }, text) : text;
}

function earlier(run) {
  if (!run.earlier) return null;
  const failed = run.earlier_failed ? `, ${run.earlier_failed === run.earlier ? "all" : run.earlier_failed.toLocaleString("en")} failed` : "";
  return h("span", { class: run.earlier_failed && run.status === "running" ? "flag" : "" }, `${several(run.earlier, "earlier run", "earlier runs")}${run.earlier === 1 && failed ? ", failed" : failed}`);
}

function tasks(known) {
  const [done, total] = known || [];
  if (!total) return null;
  const bar = s("svg", { class: "bar-of-tasks", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" });
  bar.append(s("rect", { class: "rest", width: 100, height: 6 }), s("rect", { class: "f1", width: (100 * done) / total, height: 6 }));
  return h("span", { class: "tasks" }, bar, `${done.toLocaleString("en")} of ${total.toLocaleString("en")} tasks of this stage`);
}

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
          h("span", {}, run.status === "running" ? `for ${about(answer.now - run.started)}` : ago(run.ended || run.seen, answer.now)),
          run.status === "running" ? tasks(run.tasks) : null, earlier(run),
          run.error ? h("span", { class: "said" }, run.error) : null, flags)),
      cell("rows in", figures.input_rate, "", "/s"),
      run.mode === "batch" ? cell("results", run.results, "") : cell("results", figures.result_rate, "", "/s"),
      cell("micro-batch", figures.batch_seconds, "s"), cell("event to commit", figures.latency_p95, "s"),
      cell("rows held", figures.held_rows), cell("throttle", figures.throttle, "%"), cell("recall", figures.recall, "%"),
      h("td", { class: run.course.length > 1 ? "wide" : "wide empty" }, course(run.course))));
  }
  return [h("table", { class: "runs" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", {}, name)))), body)];
}

// ------------------------------------------------------------------------------------------------- one run

const moment = (time) => new Date(time * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

function facts(run, now) {
  const parts = [run.mode === "batch" ? "batch job" : "streaming query", `${run.ended ? "began" : "since"} ${moment(run.started)}`];
  if (run.pid) parts.push(`process ${run.pid}${run.host ? ` on ${run.host}` : ""}`);
  if (run.ended) parts.push(`ended ${ago(run.ended, now)}, after ${about(run.ended - run.started)}`);
  else if (run.mode !== "batch") parts.push(`last micro-batch ${ago(run.seen, now)}`);
  return parts.join(" · ");
}

function warnings(run, docs) {
  const list = h("ul", { class: "say", id: "warnings" });
  const help = () => h("span", { class: "help" }, page("operations.md#when-something-breaks", docs));
  if (run.error) list.append(h("li", { class: "error" }, run.error, help()));
  else if (run.status === "failed") list.append(h("li", { class: "error" }, "It failed, and no error was written.", help()));
  if (run.status === "gone") list.append(h("li", { class: "error" }, "Its process has gone without writing an end: it was killed, or the machine was. Started again on the same checkpoint, it goes on where it was.", help()));
  for (const one of run.advice) {
    list.append(h("li", { class: one.level }, one.text[0].toUpperCase() + one.text.slice(1), ".", h("span", { class: "help" }, page(one.page, docs))));
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
  const parts = [h("div", { class: "head" }, h("h1", {}, run.job), pill(run), run.mode === "batch" ? null : choice), h("p", { class: "facts" }, facts(run, answer.now)), warnings(run, answer.docs)];
  if (total) parts.push(...(run.mode === "batch" ? [] : figures(answer, range)));
  else if (run.mode !== "batch") parts.push(h("p", { class: "quiet" }, "No micro-batch has ended in this time."));
  if (run.mode === "batch" && run.status === "running") parts.push(h("p", { class: "quiet" }, tasks((run.last || {}).tasks) || "No task has ended yet."));
  const counters = run.last && run.last.counters ? Object.entries(run.last.counters) : [];
  if (counters.length) {
    parts.push(h("h3", {}, run.mode === "batch" ? "What it counted" : `Counters of micro-batch ${run.last.batch ?? "?"}`));
    parts.push(h("dl", { class: "counters" }, counters.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value.toLocaleString("en", { maximumFractionDigits: 3 }))))));
  }
  if (run.plan) parts.push(h("h3", {}, "Plan"), h("pre", { class: "plan" }, run.plan));
  if (answer.others.length) parts.push(h("h3", {}, "Other runs"), others(answer));
  return parts;
}

function others(answer) {
  return h("ul", { class: "others" }, answer.others.map((other) => h("li", {},
    h("a", { href: `#run=${other.id}` }, moment(other.started)), pill(other),
    h("span", {}, other.ended ? `after ${about(other.ended - other.started)}` : `for ${about(answer.now - other.started)}`),
    other.error ? h("span", { class: "said" }, other.error) : null)));
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
    draw("dropped", "Late, early, evicted", "Rows that came too late or too early and were dropped, and rows that left the state, a second.", { lines: [line("late", "late", 2), line("early", "early", 4), line("evicted", "evicted", 1)], missing: "the join counts none of these" }),
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
