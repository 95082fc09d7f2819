// What moves: times in the reader's zone, the stream of a page, the theme, logs, curves, and terms that are dragged; and
// what keeps what was typed until it was taken.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);

  // ---- times in the reader's own zone
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const fine = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });
  const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short" });
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const dated = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const sameDay = (a, b) => a.toDateString() === b.toDateString();
  // As short as is clear: the clock of today, the weekday of this week, else the date.
  function showMoment(at, now) {
    const time = at.getSeconds() ? fine.format(at) : clock.format(at);
    if (sameDay(at, now)) return time;
    return Math.abs(at - now) < 6 * 86400e3 ? `${weekday.format(at)} ${time}` : full.format(at);
  }
  function showTimes(root) {
    const now = new Date();
    for (const one of root.querySelectorAll("[data-at]")) {
      const at = new Date(Number(one.dataset.at) * 1000);
      const midnight = at.getHours() === 0 && at.getMinutes() === 0 && at.getSeconds() === 0;
      if (one.tagName === "TIME") {
        one.textContent = "date" in one.dataset ? dated.format(at) : showMoment(at, now);
        one.title = full.format(at);
      } else {
        one.textContent = midnight || "day" in one.dataset ? day.format(at) : at.getSeconds() ? fine.format(at) : clock.format(at);
      }
    }
  }

  // ---- the stream
  let source = null, lastSeen = Date.now(), lost = false, looking = false, refused = 0;
  // What somebody is about to confirm stays as it is; all around it goes on.
  const isAsked = (node) => node.nodeType === 1 && node.matches("details.confirm[open]");
  const keep = { ignoreActiveValue: true, callbacks: { beforeAttributeUpdated: (name) => name !== "open", beforeNodeMorphed: (node) => !isAsked(node) } };
  function tell(state, text) {
    const live = $("live");
    if (!live) return;
    live.dataset.state = state;
    live.querySelector(".live-text").textContent = text;
  }
  function lose() {
    if (lost) return;
    lost = true;
    tell("lost", "not connected");
    const banner = $("banner");
    banner.textContent = `The server does not answer. What you see is from ${fine.format(new Date(lastSeen))}; this page goes on by itself when it is back.`;
    banner.hidden = false;
  }
  function find() {
    lastSeen = Date.now();
    if ("live" in document.body.dataset) tell("live", "live");
    else if (lost) tell("", "as of now");
    if (!lost) return;
    lost = false;
    $("banner").hidden = true;
  }
  function swap(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const part = $(id);
      if (!part) continue;
      window.Idiomorph.morph(part, html, keep);
      const fresh = $(id);
      if (fresh) { showTimes(fresh); window.htmx.process(fresh); fresh.dispatchEvent(new CustomEvent("drawn", { bubbles: true })); }
    }
  }
  const findStream = () => "/live" + location.pathname + location.search;
  // The source of a stream that is refused does not know why: only a user with too many pages can do something about it.
  async function tellRefusal() {
    const stop = new AbortController();
    let reason = "";
    try {
      const answer = await fetch(findStream(), { signal: stop.signal });
      if (answer.status === 429) reason = (await answer.json()).error.reason;
    } catch { /* not one of ours, or not back yet */ } finally { stop.abort(); }
    if (looking) tell("lost", reason === "limit" ? "not live; close other pages" : "not live; trying again");
  }
  function connect() {
    disconnect();
    if (!("live" in document.body.dataset) || document.hidden) return;
    source = new EventSource(findStream());
    let opened = false;
    source.onopen = () => { opened = true; refused = 0; find(); };
    source.addEventListener("page", (event) => { find(); swap(JSON.parse(event.data)); });
    source.addEventListener("ended", () => { disconnect(); lookAgain(); });
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) {
        disconnect();
        if (looking) return;
        looking = true; // one that never opened may be refused again: not at once, and later and later
        if (!opened) refused += 1;
        if (refused > 1) tellRefusal();
        setTimeout(lookAgain, opened ? 0 : 1000 * Math.min(30, refused * refused));
      } else lose();
    };
  }
  function disconnect() { if (source) { source.close(); source = null; } }
  // A stream that is refused for good is a server that starts up, or a session that has ended.
  async function lookAgain() {
    looking = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "follow" });
      const place = new URL(answer.url);
      if (place.pathname === "/signin") { place.searchParams.set("ended", "yes"); location.assign(place); return; }
      if (answer.ok) { looking = false; if (!("live" in document.body.dataset)) find(); connect(); return; }
    } catch { /* not back yet */ }
    lose();
    setTimeout(lookAgain, 1000);
  }
  // Hidden pages let go of their connection: a browser has few for each server.
  document.addEventListener("visibilitychange", connect);
  window.addEventListener("pagehide", disconnect);
  document.addEventListener("htmx:pushedIntoHistory", connect);
  // Back: what is asked for stands in the address again, and the stream of what was asked since would draw over it.
  document.addEventListener("htmx:historyRestore", () => { showTimes(document); connect(); });
  document.addEventListener("htmx:historyCacheMissLoadError", () => location.reload());
  window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  // A form that is sent to a server that is away: what was filled in stays.
  document.addEventListener("htmx:sendError", () => { lose(); if (!looking) lookAgain(); });
  document.addEventListener("htmx:afterSwap", (event) => showTimes(event.target));

  // A refusal is a sentence about what was sent, and no part of this page: it stands above, and what is here stays.
  function refuse(sentence) {
    const banner = $("refusal");
    banner.textContent = sentence.charAt(0).toUpperCase() + sentence.slice(1) + ".";
    banner.hidden = false;
  }
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    $("refusal").hidden = true;
    if (!(xhr.getResponseHeader("content-type") || "").startsWith("application/json")) return;
    event.detail.shouldSwap = false;
    let sentence = `the server answered with ${xhr.status}`;
    try { sentence = JSON.parse(xhr.responseText).error.sentence; } catch { /* not one of ours */ }
    refuse(sentence);
  });

  // ---- what was typed, kept until it was taken: a session may end before that
  const DRAFT = "springtide-form:";
  const nameDraft = (form) => DRAFT + new URL(form.action).pathname;
  function readDraft(name) {
    try { return JSON.parse(sessionStorage.getItem(name)); } catch { return null; }
  }
  function dropDrafts(isDropped) {
    try {
      for (const name of Object.keys(sessionStorage)) if (name.startsWith(DRAFT) && isDropped(name, readDraft(name))) sessionStorage.removeItem(name);
    } catch { /* private windows keep nothing */ }
  }
  function keepDraft(form, sent) {
    try { sessionStorage.setItem(nameDraft(form), JSON.stringify({ sent, fields: [...new FormData(form)] })); } catch { /* not kept */ }
  }
  function fillIn(form, fields) {
    for (const field of form.elements) {
      const values = fields.filter(([name]) => name === field.name).map(([, value]) => value);
      if (field.type === "checkbox") field.checked = values.includes(field.value);
      else if (field.name && values.length) {
        const before = field.value;
        field.value = values[0];
        if (field.tagName === "SELECT" && field.selectedIndex < 0) field.value = before; // no longer offered
        if (field.value !== before && field.closest("details")) field.closest("details").open = true;
        field.dispatchEvent(new Event("input")); // the slider beside it follows
      }
    }
  }
  function setUpDrafts() {
    const here = DRAFT + location.pathname, isSignIn = location.pathname === "/signin";
    // What was sent and led to another page was taken; unless that page is the one to sign in on.
    dropDrafts((name, draft) => !draft || (draft.sent && !isSignIn && name !== here));
    if (isSignIn) dropDrafts((name, draft) => { sessionStorage.setItem(name, JSON.stringify({ ...draft, sent: false })); return false; });
    for (const form of document.querySelectorAll("form[data-keep]")) {
      const draft = nameDraft(form) === here ? readDraft(here) : null;
      if (draft) {
        fillIn(form, draft.fields);
        window.htmx.trigger(form, "input"); // where answers follow what is typed, ask again
      }
      form.addEventListener("input", (event) => { if (!event.target.matches("[data-go]")) keepDraft(form, false); });
      form.addEventListener("submit", () => keepDraft(form, true));
      form.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) dropDrafts((name) => name === nameDraft(form)); });
    }
    for (const form of document.querySelectorAll("form[action='/signout']")) form.addEventListener("submit", () => dropDrafts(() => true));
  }

  // ---- the theme
  function setUpTheme() {
    const button = $("theme");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      const root = document.documentElement;
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("springtide-theme", root.dataset.theme); } catch { /* not kept */ }
      document.dispatchEvent(new Event("theme"));
    });
  }

  // ---- logs, as they are written
  function setUpLogs() {
    const box = $("log");
    if (!box) return;
    const MOST = 400_000; // letters that are kept on the page; a log may grow for days
    let offset = 0, rank = 0, turn = 0, reading = -1, fresh = true;
    const follow = $("follow"), ranks = $("rank");
    function show(page) {
      if (fresh || page.offset < offset || (page.text && box.dataset.empty)) box.textContent = "";
      if (fresh) $("log-cut").hidden = true;
      offset = page.next_offset;
      if (page.text) { box.append(page.text); box.dataset.empty = ""; } else if (fresh) { box.textContent = "Nothing was written yet."; box.dataset.empty = "yes"; }
      fresh = false;
      for (let left = box.textContent.length - MOST; left > 0 && box.childNodes.length > 1; $("log-cut").hidden = false) { left -= box.firstChild.length; box.firstChild.remove(); }
      if (page.text && follow.checked) box.scrollTop = box.scrollHeight;
    }
    function offerRanks(known) {
      const offered = new Set([...ranks.options].map((one) => Number(one.value)));
      for (const one of known.filter((some) => !offered.has(some))) {
        const after = [...ranks.options].find((option) => Number(option.value) > one) || null;
        ranks.insertBefore(new Option(String(one), String(one)), after);
      }
    }
    // Each choice of a rank is a turn; what comes for an earlier one is of another log.
    async function read() {
      if (reading === turn || document.hidden) return;
      const mine = reading = turn;
      try {
        const query = fresh ? `rank=${rank}&tail=400` : `rank=${rank}&offset=${offset}`;
        const answer = await fetch(`/api/v1/jobs/${encodeURIComponent(box.dataset.job)}/logs?${query}`);
        const page = answer.ok ? await answer.json() : null;
        if (page && mine === turn) { show(page); offerRanks(page.ranks); }
      } catch { /* the stream tells that the server is away */ }
      if (mine === turn) reading = -1;
    }
    ranks.addEventListener("change", () => { rank = Number(ranks.value) || 0; turn += 1; fresh = true; read(); });
    read();
    setInterval(read, 1000);
  }

  // ---- curves of what run.log recorded
  function setUpCurves() {
    const place = $("curves");
    if (!place || !window.uPlot) return;
    const HEIGHT = 210, rows = [], plots = new Map();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    function draw() {
      const names = [...new Set(rows.flatMap((row) => Object.keys(row.metrics)))].sort();
      for (const name of names) {
        const some = rows.filter((row) => typeof row.metrics[name] === "number");
        const data = [some.map((row) => row.step), some.map((row) => row.metrics[name])];
        const known = plots.get(name);
        if (known) {
          known.setData(data);
          if (!(known.cursor.left >= 0)) known.setLegend({ idx: data[0].length - 1 }, false); // nobody points at another
          continue;
        }
        const frame = document.createElement("div");
        place.append(frame);
        const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter, sans-serif" };
        plots.set(name, new window.uPlot({
          title: name, width: frame.clientWidth || 420, height: HEIGHT, scales: { x: { time: false } }, axes: [{ ...axis, size: 26 }, { ...axis, size: 62, values: (_, marks) => marks.map((mark) => String(Number(mark.toPrecision(4)))) }],
          legend: { live: true }, cursor: { points: { size: 7 } },
          hooks: { setLegend: [(plot) => { if (plot.legend.idx == null) plot.setLegend({ idx: plot.data[0].length - 1 }, false); }] }, // the last value, where none is pointed at
          series: [{ label: "step" }, { label: name, value: (_, value) => (value == null ? "–" : String(Number(value.toPrecision(4)))), stroke: colour("--safe"), width: 1.6, points: { show: some.length < 60, size: 4 } }],
        }, data, frame));
      }
      $("no-curves").hidden = names.length > 0;
    }
    async function read() {
      if (document.hidden) return;
      const after = rows.length ? rows[rows.length - 1].step : 0;
      try {
        const answer = await fetch(`/api/v1/jobs/${encodeURIComponent(place.dataset.job)}/metrics?after_step=${after}`);
        if (!answer.ok) return;
        const fresh = (await answer.json()).metrics;
        if (fresh.length) { rows.push(...fresh); draw(); }
      } catch { /* told elsewhere */ }
    }
    addEventListener("resize", () => { for (const plot of plots.values()) plot.setSize({ width: plot.root.parentElement.clientWidth, height: HEIGHT }); });
    document.addEventListener("theme", () => { for (const plot of plots.values()) plot.destroy(); plots.clear(); place.replaceChildren(); draw(); });
    read();
    setInterval(read, 2000);
  }

  // ---- terms that are dragged: a slider moves the field beside it
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  function showSpan(seconds) {
    let left = Math.round(seconds), text = "", parts = 0;
    for (const [name, size] of units) {
      const count = Math.floor(left / size);
      if ((count || text) && parts < 2) { if (count) text += count + name; left -= count * size; parts += 1; }
    }
    return text || "1s";
  }
  function readSpan(text) {
    let seconds = 0;
    for (const [, count, unit] of text.matchAll(/([\d.]+)\s*([dhms])/g)) seconds += Number(count) * Object.fromEntries(units)[unit];
    return seconds;
  }
  const kinds = {
    span: { read: readSpan, show: showSpan },
    count: { read: Number, show: (value) => String(Math.round(value)) },
    money: { read: parseFloat, show: (value) => Number(value.toPrecision(2)) + " USD" },
  };
  function setUpSliders() {
    for (const slider of document.querySelectorAll("input[type=range][data-for]")) {
      const field = $(slider.dataset.for), [low, high] = [Number(slider.dataset.low), Number(slider.dataset.high)];
      slider.hidden = false;
      const toPlace = (value) => Math.round(1000 * Math.log(Math.max(low, Math.min(high, value)) / low) / Math.log(high / low));
      const toValue = (place) => low * (high / low) ** (place / 1000);
      const kind = kinds[slider.dataset.kind];
      const set = () => { const value = kind.read(field.value); if (value) slider.value = toPlace(value); slider.classList.toggle("unset", !value); };
      set();
      field.addEventListener("input", set);
      slider.addEventListener("input", () => {
        field.value = kind.show(toValue(Number(slider.value)));
        slider.setAttribute("aria-valuetext", field.value);
        field.dispatchEvent(new Event("input", { bubbles: true }));
      });
    }
    const go = document.querySelector("select[data-go]");
    if (go) go.addEventListener("change", () => {
      dropDrafts((name) => name === nameDraft(go.form)); // typed for the code of another job
      location.assign(go.dataset.go + encodeURIComponent(go.value));
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-set]");
      if (!button) return;
      event.preventDefault();
      const field = $(button.dataset.set);
      field.value = button.dataset.value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    showTimes(document);
    setUpTheme();
    setUpLogs();
    setUpCurves();
    setUpSliders();
    setUpDrafts();
    connect();
  });
})();
