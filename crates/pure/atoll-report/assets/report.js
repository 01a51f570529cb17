// Draws the report from its data. What comes from the program is put on the page as text only (textContent), and into
// charts with its markup escaped. The names of the data are those of content.rs.
(function () {
  "use strict";
  const begun = performance.now();
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const root = document.documentElement;
  let charts = null;

  // ---- numbers ----
  const integer = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const count = (n) => integer.format(n);
  function bytes(n) {
    const units = [[2 ** 40, "T"], [2 ** 30, "G"], [2 ** 20, "M"], [1024, "K"]];
    for (const [unit, letter] of units) {
      if (n >= unit) {
        const value = n / unit;
        return value.toFixed(value >= 100 || value % 1 === 0 ? 0 : value >= 10 ? 1 : 2) + letter;
      }
    }
    return Math.round(n) + " B";
  }
  function percent(share) {
    const value = 100 * share;
    if (value > 0 && value < 0.01) return "<0.01%";
    return (value > 0 && value < 9.95 ? value.toFixed(value < 0.095 ? 2 : 1) : value.toFixed(0)) + "%";
  }
  function time(seconds) {
    if (seconds >= 1) return seconds.toPrecision(4) + " s";
    if (seconds >= 1e-3) return (seconds * 1e3).toPrecision(3) + " ms";
    return (seconds * 1e6).toPrecision(3) + " µs";
  }
  // Charts read a little markup in their texts.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // ---- tables ----
  // columns: {title, key(row) for sorting, show(row), text, share, act(row)}
  function table(id, columns, rows, order) {
    const target = by(id);
    let sorted = order === undefined ? -1 : order;
    let down = true;
    function draw() {
      const head = element("tr");
      columns.forEach((column, i) => {
        const cell = element("th", undefined, column.text ? "text" : "");
        cell.scope = "col";
        if (i === sorted) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        const button = element("button", column.title + (i === sorted ? (down ? " ▾" : " ▴") : ""));
        button.type = "button";
        button.addEventListener("click", () => {
          down = i === sorted ? !down : !column.text;
          sorted = i;
          draw();
          target.querySelectorAll("th button")[i].focus();
        });
        cell.append(button);
        head.append(cell);
      });
      const shown = rows().slice();
      if (sorted >= 0) {
        const key = columns[sorted].key;
        shown.sort((a, b) => {
          const x = key(a), y = key(b);
          const less = typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1);
          return down ? -less : less;
        });
      }
      const body = element("tbody");
      for (const row of shown) {
        const line = element("tr");
        for (const column of columns) {
          const text = column.show(row);
          const cell = element("td", undefined, column.text ? "text" : column.share ? "share" : "");
          if (column.act && column.act(row)) {
            const button = element("button", text);
            button.type = "button";
            button.addEventListener("click", () => column.act(row)());
            cell.append(button);
          } else {
            cell.textContent = text;
          }
          if (column.text) cell.title = text;
          if (column.share) cell.style.setProperty("--part", Math.min(1, column.key(row) || 0));
          line.append(cell);
        }
        body.append(line);
      }
      const headed = element("thead");
      headed.append(head);
      target.replaceChildren(headed, body);
    }
    draw();
    return draw;
  }

  // ---- summary ----
  const variables = new Map(data.variables.map((row) => [row.variable, row]));
  const full = (row) => row.name + (row.place ? "  " + row.place : "");
  for (const text of data.findings) by("findings").append(element("li", text));
  if (!data.findings.length) by("findings").replaceWith(element("p", "No memory access was sampled."));
  for (const text of data.summary) by("facts").append(element("p", text));
  const when = data.started ? " of " + new Date(data.started * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
  by("made").textContent = "Made by atoll " + data.atoll_version + " from the profile" + when + ". Charts: plotly.js, MIT licence.";

  // ---- variables ----
  const maps = new Map(data.maps.map((map) => [map.variable === null ? "all" : String(map.variable), map]));
  const wanted = (row) => {
    const name = by("variable-name").value.toLowerCase();
    const least = Number(by("variable-least").value);
    return (!name || full(row).toLowerCase().includes(name)) && (row.bytes ?? row.pages * data.block_bytes) >= least;
  };
  const variableColumns = [
    { title: "variable", text: true, key: (r) => r.name, show: (r) => r.name, act: (r) => maps.has(String(r.variable)) && (() => showMap(r.variable)) },
    { title: "line", text: true, key: (r) => r.place, show: (r) => r.place },
    { title: "kind", text: true, key: (r) => r.kind, show: (r) => r.kind },
    { title: "bytes", key: (r) => r.bytes, show: (r) => (r.bytes === null ? "" : bytes(r.bytes)) },
    { title: "accesses", share: true, key: (r) => r.share, show: (r) => percent(r.share) },
    { title: "samples", key: (r) => r.accesses, show: (r) => count(r.accesses) },
  ];
  if (data.tells_writes) variableColumns.push({ title: "writes", key: (r) => r.writes, show: (r) => percent(r.writes) });
  if (data.second) variableColumns.push({ title: "of " + data.second, key: (r) => r.second, show: (r) => percent(r.second) });
  if (data.variables.some((r) => r.paging !== null)) {
    variableColumns.push({ title: "of paging", key: (r) => r.paging, show: (r) => percent(r.paging) });
  }
  if (data.variables.some((r) => r.from_memory !== null)) {
    variableColumns.push({ title: "of far traffic", key: (r) => r.from_memory, show: (r) => percent(r.from_memory) });
  }
  variableColumns.push(
    { title: "pages seen", key: (r) => r.pages, show: (r) => count(r.pages) },
    { title: "workers", key: (r) => r.workers, show: (r) => count(r.workers) },
    { title: "most from", text: true, key: (r) => r.region, show: (r) => r.region + (r.region ? " (" + percent(r.region_share) + ")" : "") },
  );
  const drawVariables = table("variable-table", variableColumns, () => data.variables.filter(wanted), 4);
  for (const id of ["variable-name", "variable-least"]) by(id).addEventListener("input", drawVariables);
  by("variable-controls").addEventListener("submit", (e) => e.preventDefault());
  by("variable-note").textContent = [
    "A name opens the variable's map.",
    data.more_variables ? count(data.more_variables) + " more variables have fewer accesses." : "",
    data.nowhere ? percent(data.nowhere / data.accesses) + " of the accesses are in memory of no known name." : "",
    data.second ? "The column of " + data.second + " is the variable's share of that sampler's samples." : "",
    data.variables.some((r) => r.paging !== null) ? "Paging: samples that were taken while an access to the variable faulted and atoll brought the page." : "",
    data.variables.some((r) => r.from_memory !== null) ? "Far traffic: accesses whose data came from memory and from no cache." : "",
  ].filter(Boolean).join(" ");

  // ---- regions and workers ----
  const counted = data.regions.some((r) => r.counted);
  const regionColumns = [
    { title: "region", text: true, key: (r) => r.name, show: (r) => r.name },
    { title: "line", text: true, key: (r) => r.place, show: (r) => r.place },
    { title: "seconds", key: (r) => r.seconds, show: (r) => r.seconds.toFixed(3) },
    { title: "of the run", share: true, key: (r) => (data.seconds ? r.seconds / data.seconds : 0), show: (r) => percent(data.seconds ? r.seconds / data.seconds : 0) },
    { title: "entered", key: (r) => r.entered, show: (r) => count(r.entered) },
    { title: "accesses", share: true, key: (r) => r.share, show: (r) => percent(r.share) },
  ];
  if (data.tells_writes) regionColumns.push({ title: "writes", key: (r) => r.writes, show: (r) => percent(r.writes) });
  if (counted) {
    const one = (title, name) => ({ title, key: (r) => r.counted && r.counted[name], show: (r) => (r.counted ? count(r.counted[name]) : "") });
    regionColumns.push(
      one("minor faults", "minor"), one("major", "major"), one("first", "first"), one("write", "write"), one("prefetched", "prefetched"),
      { title: "time in faults", key: (r) => r.counted && r.counted.fault_seconds, show: (r) => (r.counted ? time(r.counted.fault_seconds) : "") },
    );
  }
  regionColumns.push({ title: "most of", text: true, key: (r) => r.variable, show: (r) => r.variable });
  table("region-table", regionColumns, () => data.regions, 2);
  by("region-note").textContent = data.regions.length
    ? (data.more_regions ? count(data.more_regions) + " more regions took less time. " : "") +
      (counted ? "Faults and prefetched pages are counts of atoll's runtime." : "Faults and prefetching are counted where the program runs under atoll's runtime (atoll profile --runtime on).")
    : "The record holds no parallel region.";
  table("worker-table", [
    { title: "worker", text: true, key: (r) => r.worker, show: (r) => r.label },
    { title: "thread", key: (r) => r.tid, show: (r) => String(r.tid) },
    { title: "node", key: (r) => r.node, show: (r) => String(r.node) },
    { title: "samples", key: (r) => r.accesses, show: (r) => count(r.accesses) },
    { title: "accesses", share: true, key: (r) => r.share, show: (r) => percent(r.share) },
    { title: "writes", key: (r) => r.writes, show: (r) => percent(r.writes) },
  ], () => data.workers);

  // ---- near memory ----
  const speed = (share, slow) => 1 / (share + (1 - share) * slow);
  const shareFor = (wantedSpeed, slow) => (slow <= 1 ? 0 : 1 - (1 / wantedSpeed - 1) / (slow - 1));
  function sizeFor(shares, share) {
    const at = shares.share.findIndex((s) => s >= share - 1e-12);
    return at < 0 ? null : shares.bytes[at];
  }
  const pagesTell = data.pages_tell;
  const enoughReuse = pagesTell && data.lru_reuses >= 100;
  function nearSettings() {
    const slow = Math.min(1e5, Math.max(1, Number(by("near-slow").value) || 10));
    const want = Math.min(0.999, Math.max(0.01, (Number(by("near-wanted").value) || 95) / 100));
    return { slow, want };
  }
  function nearWords() {
    const { slow, want } = nearSettings();
    const share = Math.max(0, shareFor(want, slow));
    const pages = sizeFor(data.hottest_pages, share);
    const lru = enoughReuse ? sizeFor(data.lru, share) : null;
    const words = [];
    if (pages === null) {
      words.push("No memory access was sampled.");
    } else {
      if (pagesTell) {
        words.push("Near memory of " + bytes(pages) + " gives " + percent(want) + " of the speed if the hottest pages are placed in it" +
          (lru !== null ? "; " + bytes(lru) + " if it holds what was used last (LRU)." : "."));
      }
      const fit = data.placed.findIndex((p) => p.share >= share);
      if (fit >= 0) {
        const names = data.placed.slice(0, fit + 1).sort((a, b) => (variables.get(b.variable)?.share ?? 0) - (variables.get(a.variable)?.share ?? 0))
          .slice(0, 3).map((p) => variables.get(p.variable)?.name ?? "?");
        words.push(count(fit + 1) + (fit ? " whole variables" : " whole variable") + " placed near (" + names.join(", ") + (fit > 2 ? ", …" : "") + "), " +
          bytes(data.placed[fit].bytes) + " together, " + (fit ? "give " : "gives ") + percent(want) + " of the speed.");
      }
      const one = data.placed.reduce((best, p, i) => {
        const own = p.share - (i ? data.placed[i - 1].share : 0);
        return own > best.own ? { own, p, bytes: p.bytes - (i ? data.placed[i - 1].bytes : 0) } : best;
      }, { own: 0 });
      if (one.p) {
        words.push("From all far, placing " + (variables.get(one.p.variable)?.name ?? "?") + " (" + bytes(one.bytes) + ") alone would save " +
          percent(1 - (one.own + (1 - one.own) * slow) / slow) + " of the time in memory accesses.");
      }
    }
    by("near-words").textContent = words.join(" ");
  }
  by("near-note").textContent = (pagesTell ? "A variable's bytes are those of its pages that were seen. " : "") + "Speed is that of the memory accesses sampled, if each page is either near or far: what computing hides or adds is left out. " +
    (enoughReuse
      ? "LRU: from " + count(data.lru_reuses) + " sampled reuses of " + percent(data.lru_followed) + " of the pages (first touches left out); an estimate, as touches between two samples are not seen."
      : pagesTell
        ? "Pages were sampled too seldom (" + count(data.lru_reuses) + " reuses) to say what LRU would keep."
        : "Too few samples to say it by pages: about " + percent(data.unseen) + " of the accesses go to pages that no sample saw. More samples: --overhead, --reset, a longer run.");
  const drawPlaced = table("near-table", [
    { title: "placed near, in this order", text: true, key: (r) => r.place, show: (r) => full(variables.get(r.variable) ?? { name: "?" }) },
    { title: "its bytes", key: (r) => r.own, show: (r) => bytes(r.own) },
    { title: "near memory so far", key: (r) => r.bytes, show: (r) => bytes(r.bytes) },
    { title: "accesses served", share: true, key: (r) => r.share, show: (r) => percent(r.share) },
    { title: "speed", key: (r) => r.share, show: (r) => percent(speed(r.share, nearSettings().slow)) },
    { title: "time saved from all far", key: (r) => r.share, show: (r) => percent(1 - 1 / (speed(r.share, nearSettings().slow) * nearSettings().slow)) },
  ], () => data.placed.slice(0, 100).map((p, i) => ({ ...p, place: i, own: p.bytes - (i ? data.placed[i - 1].bytes : 0) })));
  for (const id of ["near-slow", "near-wanted"]) {
    by(id).addEventListener("input", () => {
      nearWords();
      drawPlaced();
      if (charts) drawNear();
    });
  }
  by("near-controls").addEventListener("submit", (e) => e.preventDefault());
  nearWords();

  // ---- charts ----
  function look() {
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true, title: { standoff: 8 } };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") },
      margin: { l: 64, r: 16, t: 10, b: 44 }, showlegend: false, hovermode: "closest",
      hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
      axis,
    };
  }
  const config = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false, doubleClick: "reset" };
  const axisWith = (base, more) => ({ ...base, ...more, title: { ...base.title, ...(more.title || {}) } });
  function byteTicks(most, steps = 5) {
    const rough = Math.max(1, most / steps);
    const step = 2 ** Math.round(Math.log2(rough));
    const values = [];
    for (let v = 0; v <= most * 1.0001; v += step) values.push(v);
    return { tickmode: "array", tickvals: values, ticktext: values.map((v) => (v ? bytes(v) : "0")) };
  }

  function bars(id, histogram, options) {
    const base = look();
    const label = histogram.from.map((from, i) => options.label(from, histogram.to[i]));
    const trace = {
      type: "bar", y: histogram.count, marker: { color: colour("--accent") },
      text: label.map((l, i) => plain(l + ": " + options.what(histogram.count[i]))), hoverinfo: "text", textposition: "none",
    };
    let ticks = {};
    if (options.log) {
      // The axis is linear in the logarithm, so that bars have their width.
      const low = Math.log10(histogram.from[0]), high = Math.log10(histogram.to[histogram.to.length - 1]), values = [];
      for (let e = Math.ceil(low - 0.3); e <= high + 0.3; e++) values.push(e);
      trace.x = histogram.from.map((from, i) => Math.log10(from * histogram.to[i]) / 2);
      trace.width = histogram.from.map((from, i) => Math.log10(histogram.to[i] / from) * 0.92);
      ticks = { tickmode: "array", tickvals: values, ticktext: values.map((e) => options.tick(10 ** e)) };
    } else {
      trace.x = histogram.from.map((from, i) => options.name(from, histogram.to[i]));
      ticks = { type: "category" };
    }
    // Few pages are hot and many are not: both are to be seen.
    const steep = Math.max(...histogram.count) > 300;
    charts.react(id, [trace], {
      ...base, bargap: 0.15,
      xaxis: axisWith(base.axis, { ...ticks, title: { text: options.x } }),
      yaxis: axisWith(base.axis, { title: { text: options.y + (steep ? " (log)" : "") }, rangemode: "tozero", type: steep ? "log" : "linear", dtick: steep ? 1 : undefined }),
    }, config);
  }
  const empty = (id, text) => by(id).replaceChildren(element("p", text, "note"));

  function drawHistograms() {
    const unit = data.block_bytes === 4096 ? "pages of 4K" : "blocks of " + bytes(data.block_bytes);
    const range = (from, to) => (from === to ? count(from) : count(from) + " to " + count(to));
    if (data.pages_by_accesses.count.length) {
      bars("pages-chart", data.pages_by_accesses, { label: (a, b) => range(a, b) + " accesses", name: range, what: (n) => count(n) + " " + unit, x: "sampled accesses of a page", y: "pages", log: false });
    } else empty("pages-chart", "No page was sampled.");
    const workers = data.pages_by_workers;
    if (workers.count.length) {
      const base = look();
      const name = (i) => range(workers.from[i], workers.to[i]);
      const traces = [{ type: "bar", name: "seen by the sampler", x: workers.count.map((_, i) => name(i)), y: workers.count, marker: { color: colour("--accent") }, hovertemplate: "%{y} pages, %{x} workers<extra>sampled</extra>" }];
      if (data.core_maps.length) {
        traces.push({ type: "bar", name: "mapped, as the runtime counted", x: data.core_maps.map((_, i) => count(i + 1)), y: data.core_maps, marker: { color: "#d98324" }, hovertemplate: "%{y} pages, %{x} workers<extra>mapped</extra>" });
      }
      charts.react("workers-chart", traces, {
        ...base, showlegend: traces.length > 1, legend: { orientation: "h", y: 1.15 }, barmode: "group",
        xaxis: axisWith(base.axis, { type: "category", title: { text: "workers" } }),
        yaxis: axisWith(base.axis, { title: { text: "pages" }, rangemode: "tozero" }),
      }, config);
    } else empty("workers-chart", "No page was sampled.");
    by("pages-note").textContent = "Counted in " + unit + "; a page that two variables share counts for both." +
      (data.core_maps.length ? "" : " Core maps as the runtime counts them are in records of atoll profile --runtime on.");
    if (data.wakeups.count.length) {
      bars("wakeups-chart", data.wakeups, { label: (a, b) => time(a) + " to " + time(b), what: (n) => count(n) + " times", x: "time between two wake-ups", y: "wake-ups", log: true, tick: (v) => time(v).replace(/\.0+(?= )/, "") });
      by("wakeups-note").textContent = "Sampler " + data.sampler + ", all threads together.";
    } else {
      empty("wakeups-chart", "The record holds fewer than two wake-ups.");
    }
  }

  function drawNear() {
    const { slow, want } = nearSettings();
    const base = look();
    const list = pagesTell ? [["hottest pages placed near", data.hottest_pages, colour("--accent"), "solid"]] : [];
    if (enoughReuse) list.push(["what was used last (LRU)", data.lru, "#d98324", "solid"]);
    const placed = data.placed;
    const steps = list.push(["hottest variables placed near", { bytes: [0, ...placed.map((p) => p.bytes)], share: [0, ...placed.map((p) => p.share)] }, colour("--soft"), "dot"]) - 1;
    const most = data.hottest_pages.bytes.length ? data.hottest_pages.bytes[data.hottest_pages.bytes.length - 1] : 1;
    const traces = list.map(([name, shares, line, dash], k) => ({
      type: "scatter", mode: k === steps ? "lines+markers" : "lines", name, x: shares.bytes,
      y: shares.share.map((s) => 100 * speed(s, slow)), line: { color: line, dash, shape: k === steps ? "hv" : "linear", width: 2 }, marker: { size: 5 },
      text: shares.bytes.map((b, i) => plain(name + ": " + bytes(b) + " near, " + percent(shares.share[i]) + " of accesses, " + percent(speed(shares.share[i], slow)) + " of the speed")), hoverinfo: "text",
    }));
    const far = Math.max(pagesTell ? most : placed.length ? placed[placed.length - 1].bytes : 1, ...(enoughReuse ? data.lru.bytes.slice(-1) : [0])) * 1.05;
    charts.react("near-chart", traces, {
      ...base, showlegend: true, legend: { x: 0.99, xanchor: "right", y: 0.05, bgcolor: "rgba(0,0,0,0)" },
      xaxis: axisWith(base.axis, { title: { text: "near memory" }, range: [0, far], ...byteTicks(far, 8) }),
      yaxis: axisWith(base.axis, { title: { text: "speed, % of all near" }, range: [0, 103] }),
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: want * 100, y1: want * 100, line: { color: colour("--soft"), width: 1, dash: "dash" } }],
    }, config);
  }

  // ---- the map ----
  const decoded = new Map();
  function squares(map, apart) {
    const key = (map.variable === null ? "all" : map.variable) + (apart ? "/" : "");
    if (decoded.has(key)) return decoded.get(key);
    const grid = apart ? map.apart : map.together;
    const raw = atob(grid.squares);
    const list = [];
    let value = 0, scale = 1, next = 0, at = -1;
    for (let i = 0; i < raw.length; i++) {
      const byte = raw.charCodeAt(i);
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte < 128) {
        if (at < 0) {
          at = next + value;
          next = at + 1;
        } else {
          list.push(at, value);
          at = -1;
        }
        value = 0;
        scale = 1;
      }
    }
    decoded.set(key, list);
    return list;
  }
  function fill(map, lane, access) {
    const apart = lane !== null && map.apart.rows > 0;
    const grid = apart ? map.apart : map.together;
    const reads = new Float64Array(grid.rows * grid.columns), writes = new Float64Array(grid.rows * grid.columns);
    const list = squares(map, apart), size = grid.rows * grid.columns * 2, first = apart ? lane * size : 0;
    for (let i = 0; i < list.length; i += 2) {
      const place = list[i] - first;
      if (place < 0 || place >= size) continue;
      (place & 1 ? writes : reads)[place >> 1] += list[i + 1];
    }
    const z = [];
    let most = 0;
    for (let row = 0; row < grid.rows; row++) {
      const line = new Array(grid.columns);
      for (let column = 0; column < grid.columns; column++) {
        const at = row * grid.columns + column;
        const n = (access === "writes" ? 0 : reads[at]) + (access === "reads" ? 0 : writes[at]);
        if (n > most) most = n;
        line[column] = n > 0 ? Math.log10(n) : null;
      }
      z.push(line);
    }
    return { grid, reads, writes, z, most };
  }
  function address(map, block) {
    for (let i = map.pieces.length - 1; i >= 0; i--) {
      const [before, first] = map.pieces[i];
      if (block >= before || i === 0) return BigInt("0x" + first) + BigInt(Math.round(Math.max(0, block - before))) * BigInt(map.block_bytes);
    }
    return 0n;
  }
  const hex = (n) => "0x" + n.toString(16);
  const scales = {
    light: [[0, "#d8e8f3"], [0.25, "#8fc1dd"], [0.5, "#3f8fbf"], [0.75, "#1b5a92"], [1, "#0b2447"]],
    dark: [[0, "#1e3a5f"], [0.25, "#2a6f97"], [0.5, "#3fa7a0"], [0.75, "#9fd36b"], [1, "#fdf3a6"]],
  };
  let shown = null;
  let cursor = null;

  function mapChoices() {
    const select = by("map-variable"), least = Number(by("map-least").value), before = select.value || "all";
    select.replaceChildren();
    for (const [key, map] of maps) {
      const row = map.variable === null ? null : variables.get(map.variable);
      if (row && (row.bytes ?? row.pages * data.block_bytes) < least) continue;
      const option = element("option", row ? full(row) + " (" + percent(row.share) + (row.bytes === null ? "" : ", " + bytes(row.bytes)) + ")" : "all memory");
      option.value = key;
      select.append(option);
    }
    select.value = [...select.options].some((o) => o.value === before) ? before : "all";
  }
  {
    const select = by("map-worker");
    const all = element("option", "all workers");
    all.value = "";
    select.append(all);
    const labels = new Map(data.workers.map((w) => [w.worker, w.label]));
    if (data.lanes.length > 1) {
      data.lanes.forEach((worker, lane) => {
        const option = element("option", worker === null ? "all others" : labels.get(worker) ?? "worker " + worker);
        option.value = String(lane);
        select.append(option);
      });
    } else {
      select.disabled = true;
    }
    by("map-access-label").hidden = !data.tells_writes;
  }

  function describe(row, column) {
    const { map, reads, writes, grid } = shown;
    if (row < 0 || column < 0 || row >= grid.rows || column >= grid.columns) return "";
    const blocks = grid.row_blocks;
    const from = address(map, row * blocks), to = address(map, (row + 1) * blocks - 1) + BigInt(map.block_bytes);
    const number = map.variable === null ? map.row_variables[Math.min(map.row_variables.length - 1, Math.floor((row * blocks) / map.together.row_blocks))] : map.variable;
    const variable = number === null || number === undefined ? null : variables.get(number);
    const at = row * grid.columns + column, step = data.seconds / grid.columns;
    return [
      variable ? full(variable) + " (" + variable.kind + ")" : "memory of no known name",
      hex(from) + " to " + hex(to) + (to - from > BigInt(map.block_bytes) * BigInt(blocks) ? " (with a gap)" : ""),
      time(column * step) + " to " + time((column + 1) * step),
      data.tells_writes ? count(reads[at]) + " reads, " + count(writes[at]) + " writes" : count(reads[at] + writes[at]) + " accesses",
    ].join("\n");
  }

  // The chart library takes tags and entities in its texts for formatting; a name has none.
  const literal = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (name) => literal(name.length > 22 ? name.slice(0, 21) + "…" : name);
  // A variable's own map counts from its beginning; a piece of memory that lies apart from the one before is another block of it.
  function within(map, block) {
    let piece = 0;
    for (let i = 0; i < map.pieces.length; i++) if (map.pieces[i][0] <= block) piece = i;
    const inside = (block - map.pieces[piece][0]) * map.block_bytes;
    return (map.pieces.length > 1 ? "block " + (piece + 1) + " " : "") + "+" + (inside > 0 ? bytes(inside) : "0");
  }
  // The map of all memory names each stretch of rows that one variable has, the longest ones where there are many.
  function stretches(map, grid) {
    const found = [], all = map.row_variables, scale = map.together.row_blocks;
    const variableOf = (row) => all[Math.min(all.length - 1, Math.floor((row * grid.row_blocks) / scale))] ?? null;
    for (let row = 0; row < grid.rows; row++) {
      const variable = variableOf(row), last = found[found.length - 1];
      // A row that nothing is known of lies within a variable, or between two.
      if (variable === null) continue;
      if (last && last.variable === variable) last.rows = row - last.row + 1;
      else found.push({ variable, row, rows: 1 });
    }
    const apart = grid.rows / 16, kept = [];
    for (const one of found.sort((a, b) => b.rows - a.rows)) {
      if (kept.length < 16 && kept.every((k) => Math.abs(k.row + k.rows / 2 - one.row - one.rows / 2) >= apart)) kept.push(one);
    }
    return kept.sort((a, b) => a.row - b.row);
  }
  function rowTicks(map, grid) {
    const values = [], texts = [];
    if (map.variable === null && map.row_variables.some((variable) => variable !== null)) {
      for (const { variable, row, rows } of stretches(map, grid)) {
        values.push(row + (rows - 1) / 2);
        const known = variables.get(variable);
        texts.push(known ? short(known.name) : hex(address(map, row * grid.row_blocks)));
      }
    } else {
      const wish = Math.min(8, grid.rows), one = map.variable === null ? null : variables.get(map.variable);
      for (let i = 0; i < wish; i++) {
        const row = Math.floor((grid.rows * i) / wish), block = row * grid.row_blocks;
        values.push(row - 0.5);
        texts.push(!one ? hex(address(map, block)) : i === 0 && map.pieces.length === 1 ? short(one.name) : within(map, block));
      }
    }
    return { tickmode: "array", tickvals: values, ticktext: texts, tickfont: { family: "ui-monospace, monospace", size: 11 } };
  }

  function drawMap(keepZoom) {
    const map = maps.get(by("map-variable").value) ?? data.maps[0];
    if (!map || !map.pieces.length) return empty("map-chart", "No memory access was sampled.");
    const lane = by("map-worker").value === "" ? null : Number(by("map-worker").value);
    const filled = fill(map, lane, by("map-access").value);
    const zoom = keepZoom && shown && shown.map === map && shown.grid.rows === filled.grid.rows ? by("map-chart").layout : null;
    shown = { map, ...filled };
    cursor = null;
    const base = look(), { grid, z, most } = shown;
    const step = data.seconds / grid.columns, top = Math.max(1, Math.log10(most || 1));
    const ticks = [];
    for (let e = 0; e <= Math.ceil(top); e++) ticks.push(e);
    charts.react("map-chart", [{
      type: "heatmap", z, x0: step / 2, dx: step, y0: 0, dy: 1, hoverinfo: "none", hoverongaps: false, zmin: 0, zmax: top,
      colorscale: scales[root.dataset.theme === "dark" ? "dark" : "light"],
      colorbar: { title: { text: "samples", side: "right" }, tickvals: ticks, ticktext: ticks.map((e) => count(10 ** e)), thickness: 12, outlinewidth: 0 },
    }], {
      ...base, dragmode: "zoom",
      xaxis: axisWith(base.axis, { title: { text: "time, s" }, range: zoom ? zoom.xaxis.range : [0, data.seconds || 1], showgrid: false, zeroline: false }),
      yaxis: axisWith(base.axis, { range: zoom ? zoom.yaxis.range : [-0.5, grid.rows - 0.5], showgrid: false, zeroline: false, ...rowTicks(map, grid) }),
    }, { ...config, scrollZoom: false, doubleClick: false });
  }
  const whole = () => shown && charts.relayout("map-chart", { "xaxis.range": [0, data.seconds || 1], "yaxis.range": [-0.5, shown.grid.rows - 0.5] });
  function showMap(variable) {
    by("map-least").value = "0";
    mapChoices();
    by("map-variable").value = String(variable);
    if (charts) drawMap();
    by("map").scrollIntoView();
    by("map-chart").focus({ preventScroll: true });
  }
  function placeCursor() {
    const step = data.seconds / shown.grid.columns, [row, column] = cursor;
    const layout = by("map-chart").layout;
    const change = { shapes: [{ type: "rect", x0: column * step, x1: (column + 1) * step, y0: row - 0.5, y1: row + 0.5, line: { color: colour("--bad"), width: 2 } }] };
    const [x0, x1] = layout.xaxis.range, [y0, y1] = layout.yaxis.range, x = (column + 0.5) * step;
    if (x < x0 || x > x1) change["xaxis.range"] = [x - (x1 - x0) / 2, x + (x1 - x0) / 2];
    if (row < y0 || row > y1) change["yaxis.range"] = [row - (y1 - y0) / 2, row + (y1 - y0) / 2];
    charts.relayout("map-chart", change);
    by("map-readout").textContent = describe(row, column).replace(/\n/g, " · ");
  }
  function zoomAt(factor) {
    const layout = by("map-chart").layout, step = data.seconds / shown.grid.columns;
    const [x0, x1] = layout.xaxis.range, [y0, y1] = layout.yaxis.range;
    const x = cursor ? (cursor[1] + 0.5) * step : (x0 + x1) / 2, y = cursor ? cursor[0] : (y0 + y1) / 2;
    const w = Math.min(data.seconds, (x1 - x0) * factor) / 2, h = Math.min(shown.grid.rows, (y1 - y0) * factor) / 2;
    const cx = Math.min(data.seconds - w, Math.max(w, x)), cy = Math.min(shown.grid.rows - 0.5 - h, Math.max(h - 0.5, y));
    charts.relayout("map-chart", { "xaxis.range": [cx - w, cx + w], "yaxis.range": [cy - h, cy + h] });
  }
  by("map-chart").addEventListener("keydown", (e) => {
    if (!shown || e.ctrlKey || e.altKey || e.metaKey) return;
    const layout = by("map-chart").layout, grid = shown.grid, step = data.seconds / grid.columns;
    const stride = (range, unit) => Math.max(1, Math.round((range[1] - range[0]) / unit / (e.shiftKey ? 10 : 60)));
    const across = stride(layout.xaxis.range, step), up = stride(layout.yaxis.range, 1);
    const moves = { ArrowLeft: [0, -across], ArrowRight: [0, across], ArrowUp: [up, 0], ArrowDown: [-up, 0] };
    if (moves[e.key]) {
      if (!cursor) {
        const [x0, x1] = layout.xaxis.range, [y0, y1] = layout.yaxis.range;
        cursor = [Math.round((y0 + y1) / 2), Math.floor((x0 + x1) / 2 / step)];
      }
      const clamp = (v, most) => Math.min(most - 1, Math.max(0, v));
      cursor = [clamp(cursor[0] + moves[e.key][0], grid.rows), clamp(cursor[1] + moves[e.key][1], grid.columns)];
      placeCursor();
    } else if (e.key === "+" || e.key === "=") zoomAt(0.5);
    else if (e.key === "-") zoomAt(2);
    else if (e.key === "0" || e.key === "Home") whole();
    else return;
    e.preventDefault();
  });
  for (const id of ["map-variable"]) by(id).addEventListener("change", () => charts && drawMap(false));
  for (const id of ["map-worker", "map-access"]) by(id).addEventListener("change", () => charts && drawMap(true));
  by("map-least").addEventListener("change", () => {
    mapChoices();
    if (charts) drawMap(true);
  });
  by("map-reset").addEventListener("click", whole);
  by("map-controls").addEventListener("submit", (e) => e.preventDefault());
  mapChoices();

  // ---- light and dark ----
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  function theme() {
    root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    by("theme").textContent = root.dataset.theme === "dark" ? "Light" : "Dark";
    if (charts) drawAll();
  }
  by("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    theme();
  });
  dark.addEventListener("change", theme);
  theme();

  function drawAll() {
    drawMap(true);
    drawNear();
    drawHistograms();
  }

  // ---- the library ----
  async function load() {
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is older than 2023");
    const packed = atob(by("library").textContent), bytesOf = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytesOf[i] = packed.charCodeAt(i);
    const stream = new Blob([bytesOf]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = element("script", await new Response(stream).text());
    document.head.append(script);
    if (!window.Plotly) throw new Error("the chart library did not start");
    charts = window.Plotly;
    drawAll();
    const tip = by("tip"), chart = by("map-chart");
    if (chart.on) {
      chart.on("plotly_hover", (event) => {
        const point = event.points[0];
        const [row, column] = point.pointNumber;
        const text = describe(row, column);
        tip.textContent = text;
        tip.hidden = false;
        const x = event.event.clientX, y = event.event.clientY;
        tip.style.left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8) + "px";
        tip.style.top = (y + tip.offsetHeight + 24 > innerHeight ? y - tip.offsetHeight - 12 : y + 14) + "px";
        by("map-readout").textContent = text.replace(/\n/g, " · ");
      });
      chart.on("plotly_unhover", () => (tip.hidden = true));
      chart.on("plotly_doubleclick", whole);
    }
    root.dataset.ready = String(Math.round(performance.now()));
  }
  root.dataset.tables = String(Math.round(performance.now() - begun));
  load().catch((error) => {
    by("trouble").hidden = false;
    by("trouble").textContent = "The charts cannot be drawn: " + error.message + ". The tables are complete.";
    root.dataset.ready = "failed";
  });
})();
