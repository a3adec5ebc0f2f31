/* The page of `treadle inspect`. Pictures and tables are in the page already; this shows parts of them, colours and links them.
   Whatever comes from a model is put into the page as text alone. */
"use strict";

const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(one(`#${id}`).textContent), letter => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

function seconds(value) {
  for (const [factor, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]) {
    if (value >= factor) return `${+(value / factor).toPrecision(3)} ${unit}`;
  }
  return "0";
}

function size(value) {
  for (const [factor, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= factor) return `${+(value / factor).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

/* Round numbers between two, at most `most`. */
function ticks(low, high, most) {
  const raw = (high - low) / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= raw), found = [];
  for (let value = Math.ceil(low / step) * step; value <= high && found.length < most; value += step) found.push(value);
  return found;
}

const HEAT = ["#3f74c9", "#2fa7a0", "#8fbf45", "#f0b429", "#e0433a"];  // from little to much
const GREY = "#8a8f98";
const TYPES = {
  float64: "#8a3ffc", float32: "#3987e5", float16: "#2fa37c", bfloat16: "#12a5a5", int64: GREY, int32: GREY,
  int8: "#e07b39", uint8: "#d6a419", int4: "#d5537d", uint4: "#d5537d", bool: "#5f8f2f",
};

/* A colour between those of HEAT, for 0 to 1. */
function heat(share) {
  const at = Math.min(Math.max(share, 0), 1) * (HEAT.length - 1), low = Math.min(Math.floor(at), HEAT.length - 2);
  const mix = [1, 3, 5].map(k => {
    const [a, b] = [HEAT[low], HEAT[low + 1]].map(colour => parseInt(colour.slice(k, k + 2), 16));
    return Math.round(a + (b - a) * (at - low));
  });
  return `rgb(${mix.join(" ")})`;
}

const state = {program: 0, tab: "", mode: "kind", picked: null, matches: [], texts: null, kernel: [], fn: []};
let facts = {programs: [], aligned: []};
const views = [];  // of graphs

// ---- tabs, programs, theme ----

function show(tab) {
  if (!one(`#tab-${tab}`)) return;
  state.tab = tab;
  for (const section of all("section")) section.hidden = section.id !== `tab-${tab}`;
  for (const button of all("nav button")) {
    const is = button.dataset.tab === tab;
    button.setAttribute("aria-selected", is);
    button.tabIndex = is ? 0 : -1;
  }
  try { history.replaceState(null, "", `#${tab}`); } catch { /* some browsers keep files from it */ }
  if (tab === "graph") for (const view of views) view.ready();
  if (tab === "kernels") drawKernels();
  if (tab === "code") drawCode();
}

function choose(program) {
  state.program = program;
  for (const button of all(".program")) button.setAttribute("aria-pressed", +button.dataset.program === program);
  const isSplit = one("#split")?.getAttribute("aria-pressed") === "true";
  for (const panel of all(".of")) {
    const is = +panel.dataset.program === program || (isSplit && panel.closest(".views"));
    panel.toggleAttribute("data-shown", Boolean(is));
  }
  if (state.picked && state.picked.program !== program && !isSplit) pick(null);
  recolour();
  if (state.tab) show(state.tab);
}

function turnTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme.includes("dark") && document.documentElement.dataset.theme !== "light"
    && (document.documentElement.dataset.theme === "dark" || matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
}

// ---- what is picked ----

const nodeOf = picked => picked && facts.programs[picked.program].nodes[picked.key];

/* Nodes of other programs that do the same, and those of this one beside it. */
function counterparts(program, key) {
  const group = facts.aligned.find(members => members[program]?.includes(key));
  return group ?? facts.programs.map((_, number) => (number === program ? [key] : []));
}

/* The node of another program whose name begins most like this one's: what was fused otherwise is near it. */
function nearest(origin, program) {
  const parts = origin.split(" + ")[0].split("/");
  let best = null, most = 1;
  for (const [key, node] of Object.entries(facts.programs[program].nodes)) {
    const other = (node.origin ?? "").split(" + ")[0].split("/"), differs = parts.findIndex((part, k) => part !== other[k]);
    const same = differs < 0 ? parts.length : differs;
    if (same > most) [best, most] = [key, same];
  }
  return best;
}

function pick(key, program = state.program, {follow = true} = {}) {
  state.picked = key === null || !facts.programs[program]?.nodes[key] ? null : {program, key};
  for (const marked of all(".picked")) marked.classList.remove("picked");
  for (const edge of all(".edge.near")) edge.classList.remove("near");
  if (state.picked) {
    const groups = counterparts(program, key);
    for (const [number, keys] of groups.entries()) {
      const mine = number === program ? [key] : keys;
      for (const panel of all(`.of[data-program="${number}"]`)) {
        for (const each of mine) for (const mark of all(`[data-node="${each}"]`, panel)) mark.classList.add("picked");
      }
      const shown = mine[0] ?? nearest(nodeOf(state.picked).origin ?? "", number);
      if (shown && (follow || number !== program)) views[number]?.reveal(shown);
    }
    if (program === 0) for (const row of all(`#tab-compare tr[data-node="${key}"]`)) row.classList.add("picked");
    for (const edge of all(`[data-from="${key}"], [data-to="${key}"]`, one(`.views .of[data-program="${program}"]`))) edge.classList.add("near");
  }
  describe();
}

function neighbours(program, key) {
  const panel = one(`.views .of[data-program="${program}"]`), isNode = other => other in facts.programs[program].nodes;
  return {
    reads: all(`.edge[data-to="${key}"]`, panel).map(edge => edge.dataset.from).filter(isNode),
    readers: all(`.edge[data-from="${key}"]`, panel).map(edge => edge.dataset.to).filter(isNode),
  };
}

function describe() {
  const side = one("aside"), node = nodeOf(state.picked);
  if (!node) {
    side.replaceChildren(make("h2", {}, "Nothing is selected"), make("p", {class: "note"}, "Click a node, or find one with /."));
    return;
  }
  const {program, key} = state.picked, {reads, readers} = neighbours(program, key);
  const link = other => make("button", {class: "link", type: "button", onclick: () => pick(other, program)}, facts.programs[program].nodes[other]?.label ?? other);
  const buttons = [];
  if (node.place) buttons.push(make("button", {type: "button", onclick: () => { choose(program); openCode(...node.place); }}, "Bytecode"));
  if (node.kernel) buttons.push(make("button", {type: "button", onclick: () => { choose(program); openKernel(node.kernel); }}, "Kernel"));
  if (node.callee) buttons.push(make("button", {type: "button", onclick: () => goToFunction(program, node.callee)}, `@${node.callee}`));
  const lines = node.lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
  side.replaceChildren(
    make("h2", {}, node.label),
    make("div", {class: "row"}, make("span", {class: "chip"}, node.kind), ...(node.precision ? [make("span", {class: "chip"}, node.precision)] : [])),
    make("div", {class: "row"}, ...buttons),
    make("dl", {}, ...lines),
    ...(reads.length ? [make("dl", {}, make("dt", {}, "reads"), make("dd", {}, ...reads.map(link)))] : []),
    ...(readers.length ? [make("dl", {}, make("dt", {}, "is read by"), make("dd", {}, ...readers.map(link)))] : []),
  );
}

// ---- the graph ----

/* A picture that is moved and zoomed by its viewBox. */
class View {
  constructor(panel, program) {
    this.panel = panel;
    this.program = program;
    this.svg = one("svg", panel);
    const [, , width, height] = this.svg.getAttribute("viewBox").split(" ").map(Number);
    Object.assign(this, {width, height, x: 0, y: 0, scale: 0});
    this.nodes = new Map(all(".node", this.svg).map(node => [node.dataset.node, node]));
    panel.tabIndex = 0;
    panel.addEventListener("wheel", event => {
      event.preventDefault();
      const box = panel.getBoundingClientRect();
      if (event.shiftKey) this.move(event.deltaY + event.deltaX, 0);
      else this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? .04 : .0016)), event.clientX - box.left, event.clientY - box.top);
    }, {passive: false});
    this.drag();
    panel.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.scale && this.draw()).observe(panel);
  }

  get room() { return [this.panel.clientWidth, this.panel.clientHeight]; }

  ready() {
    if (!this.scale && this.panel.clientWidth) this.fit(true);
  }

  /* The whole in sight; of what is long, at first, as much as can be read. */
  fit(isFirst = false) {
    const [width, height] = this.room, whole = Math.min(width / (this.width + 60), height / (this.height + 60));
    this.scale = Math.min(isFirst ? Math.max(whole, Math.min(.78, width / (this.width + 60))) : whole, 1.4);
    this.x = this.width / 2 - width / 2 / this.scale;
    this.y = whole >= this.scale ? this.height / 2 - height / 2 / this.scale : -20 / this.scale;
    this.draw();
  }

  draw() {
    const [width, height] = this.room;
    this.svg.setAttribute("viewBox", `${this.x} ${this.y} ${width / this.scale} ${height / this.scale}`);
    this.svg.classList.toggle("far", this.scale < .22);
  }

  zoom(factor, x = this.room[0] / 2, y = this.room[1] / 2) {
    const scale = Math.min(Math.max(this.scale * factor, .004), 4);
    this.x += x / this.scale - x / scale;
    this.y += y / this.scale - y / scale;
    this.scale = scale;
    this.draw();
  }

  move(x, y) {
    this.x += x / this.scale;
    this.y += y / this.scale;
    this.draw();
  }

  /* Moves so that a node is in sight, and large enough to be read. */
  reveal(key) {
    const node = this.nodes.get(key);
    if (!node || !this.scale) return;
    if (this.scale < .5) this.zoom(.8 / this.scale);
    const box = node.getBoundingClientRect(), whole = this.panel.getBoundingClientRect(), [width, height] = this.room;
    if (!whole.width) return;
    const isIn = box.left > whole.left + 20 && box.right < whole.right - 20 && box.top > whole.top + 20 && box.bottom < whole.bottom - 20;
    if (!isIn) this.move((box.left + box.right) / 2 - whole.left - width / 2, (box.top + box.bottom) / 2 - whole.top - height / 2);
  }

  drag() {
    let from = null, isMoved = false;
    this.svg.addEventListener("pointerdown", event => { from = [event.clientX, event.clientY]; isMoved = false; });
    this.svg.addEventListener("pointermove", event => {
      if (!from || !event.buttons) return;
      const [x, y] = from;
      if (!isMoved && Math.hypot(event.clientX - x, event.clientY - y) < 4) return;
      if (!isMoved) { isMoved = true; this.svg.setPointerCapture(event.pointerId); this.svg.classList.add("moving"); }
      this.move(x - event.clientX, y - event.clientY);
      from = [event.clientX, event.clientY];
    });
    this.svg.addEventListener("pointerup", event => {
      from = null;
      this.svg.classList.remove("moving");
      if (isMoved) return;
      const node = event.target.closest?.(".node");
      pick(node ? node.dataset.node : null, this.program, {follow: false});
    });
    this.svg.addEventListener("dblclick", event => {
      const callee = facts.programs[this.program].nodes[event.target.closest?.(".node")?.dataset.node]?.callee;
      if (callee) goToFunction(this.program, callee);
    });
  }

  /* Arrows go along edges, and, with nothing selected, move the picture. */
  key(event) {
    const step = 80, moves = {ArrowUp: [0, -step], ArrowDown: [0, step], ArrowLeft: [-step, 0], ArrowRight: [step, 0]};
    if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(.8);
    else if (event.key === "0" || event.key === "f") this.fit();
    else if (event.key === "Enter" && !state.picked) pick([...this.nodes.keys()][0], this.program);
    else if (moves[event.key]) this.step(event.key, moves[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  step(key, [x, y]) {
    const picked = state.picked?.program === this.program ? state.picked.key : null;
    if (!picked) return this.move(x, y);
    const {reads, readers} = neighbours(this.program, picked);
    let beside = [];
    if (key === "ArrowUp") beside = reads;
    else if (key === "ArrowDown") beside = readers;
    else {
      const related = [...reads.flatMap(each => neighbours(this.program, each).readers), ...readers.flatMap(each => neighbours(this.program, each).reads)];
      const place = each => this.nodes.get(each)?.getBoundingClientRect().left ?? 0, here = place(picked);
      beside = related.filter(each => key === "ArrowLeft" ? place(each) < here : place(each) > here);
    }
    if (beside.length) pick(beside[0], this.program);
  }
}

function goToFunction(program, name) {
  const number = facts.programs[program].functions.findIndex(each => each.name === name), view = views[program];
  const frame = one(`[data-function="${number}"] .frame`, view.panel);
  if (!frame) return;
  show("graph");
  const box = frame.getBoundingClientRect(), whole = view.panel.getBoundingClientRect(), [width] = view.room;
  view.move((box.left + box.right) / 2 - whole.left - width / 2, box.top - whole.top - 40);
}

const MODES = {
  kind: {title: "what it does"},
  seconds: {title: "time", shown: seconds},
  memory: {title: "memory in use", shown: size},
  precision: {title: "precision"},
  error: {title: "error", shown: value => `${+value.toPrecision(2)} × bound`},
};

/* Colours the nodes of all graphs by the same scale, and says in the legend what the colours mean. */
function recolour() {
  const mode = state.mode, shown = facts.programs.flatMap(each => Object.values(each.nodes));
  const values = shown.map(node => node[mode]).filter(value => typeof value === "number"), most = Math.max(0, ...values);
  const share = mode === "error"
    ? value => (Math.log10(Math.max(value, 1e-3)) + 2) / 4  // from a hundredth of the bound to a hundred times as much
    : value => (most ? Math.sqrt(value / most) : 0);
  const used = new Set();
  for (const view of views) {
    const nodes = facts.programs[view.program].nodes;
    for (const [key, drawn] of view.nodes) {
      const node = nodes[key], box = one(".box", drawn);
      if (!node) continue;
      let colour = GREY, opacity = .1;
      if (mode === "kind") [colour, opacity] = [facts.kinds[node.kind] ?? colour, .16];
      else if (mode === "precision") [colour, opacity] = node.precision ? [TYPES[node.precision] ?? colour, .3] : [colour, .1];
      else if (typeof node[mode] === "number") [colour, opacity] = [heat(share(node[mode])), .25 + .45 * Math.min(1, share(node[mode]))];
      used.add(mode === "kind" ? node.kind : node.precision);
      box.style.fill = box.style.stroke = colour;
      box.style.fillOpacity = opacity;
      drawn.classList.toggle("first", Boolean(node.first) && mode === "error");
    }
  }
  const legend = one(".legend");
  if (mode === "kind" || mode === "precision") {
    const table = mode === "kind" ? facts.kinds : TYPES;
    legend.replaceChildren(...Object.entries(table).filter(([name]) => used.has(name)).map(([name, colour]) => {
      const swatch = make("i");
      swatch.style.background = colour;
      return make("span", {}, swatch, name);
    }));
  } else if (!values.length) {
    legend.replaceChildren(mode === "error" ? "nothing was compared: --against names another program or runtime" : "no call was made");
  } else {
    const scale = make("span", {class: "scale"});
    scale.style.background = `linear-gradient(90deg, ${HEAT.join(", ")})`;
    const ends = mode === "error" ? facts.ends : ["0", MODES[mode].shown(most)];
    legend.replaceChildren(make("span", {}, ends[0], scale, ends[1]));
  }
}

/* Marks the nodes that hold all words; the others fade. */
function search(text) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  state.matches = [];
  for (const view of views) {
    for (const [key, drawn] of view.nodes) {
      const node = facts.programs[view.program].nodes[key];
      const whole = [node?.label, node?.origin, ...(node?.lines ?? []).map(line => line[1])].join(" ").toLowerCase();
      const is = terms.length > 0 && terms.every(term => whole.includes(term));
      drawn.classList.toggle("match", is);
      drawn.classList.toggle("dim", terms.length > 0 && !is);
      if (is) state.matches.push({program: view.program, key});
    }
  }
  state.matches.sort((a, b) => (b.program === state.program) - (a.program === state.program));
  one("#found").textContent = terms.length ? `${state.matches.length} found` : "";
}

function nextMatch(step = 1) {
  if (!state.matches.length) return;
  const at = state.matches.findIndex(each => each.key === state.picked?.key && each.program === state.picked?.program);
  const {program, key} = state.matches[(at + step + state.matches.length) % state.matches.length];
  pick(key, program);
}

function setUpGraph() {
  const section = one("#tab-graph"), panels = all(".of", section);
  const mode = make("select", {id: "mode", "aria-label": "colour by"}, ...Object.entries(MODES).map(([name, {title}]) => make("option", {value: name}, title)));
  mode.addEventListener("change", () => { state.mode = mode.value; recolour(); });
  const query = make("input", {type: "search", id: "query", placeholder: "find nodes  ( / )", "aria-label": "find nodes"});
  query.addEventListener("input", () => search(query.value));
  query.addEventListener("keydown", event => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { query.value = ""; search(""); query.blur(); }
  });
  const here = () => views[state.picked?.program ?? state.program];
  const tools = make("div", {class: "tools"}, query, make("span", {id: "found"}),
    make("label", {for: "mode"}, "colour by"), mode,
    make("button", {type: "button", title: "closer", onclick: () => here().zoom(1.25)}, "+"),
    make("button", {type: "button", title: "further away", onclick: () => here().zoom(.8)}, "−"),
    make("button", {type: "button", onclick: () => { for (const view of views) view.fit(); }}, "Fit"));
  if (panels.length > 1) {
    const split = make("button", {type: "button", id: "split", "aria-pressed": "true", onclick: () => {
      split.setAttribute("aria-pressed", split.getAttribute("aria-pressed") !== "true");
      choose(state.program);
    }}, "Side by side");
    tools.append(split);
  }
  tools.append(make("div", {class: "legend"}));
  const holder = make("div", {class: "views"}, ...panels);
  section.replaceChildren(tools, holder, make("aside", {"aria-live": "polite"}));
  for (const [program, panel] of panels.entries()) {
    if (panels.length > 1) panel.append(make("span", {class: "title"}, facts.programs[program].name));
    views.push(new View(panel, program));
  }
}

// ---- bytecode ----

function setUpReader(tab, title) {
  one(`#tab-${tab}`).replaceChildren(make("div", {class: "list", "aria-label": title}), make("div", {class: "reader"}));
}

function drawCode() {
  const {functions} = facts.programs[state.program], at = state.fn[state.program] ?? 0, fn = functions[at];
  const spent = each => each.code.reduce((sum, line) => sum + line[6], 0), most = Math.max(...functions.map(spent), 1e-12);
  one("#tab-code .list").replaceChildren(...functions.map((each, number) => {
    const meter = make("i", {class: "meter"});
    meter.style.width = `${100 * spent(each) / most}%`;
    return make("button", {type: "button", "aria-current": number === at, title: each.name, onclick: () => { state.fn[state.program] = number; drawCode(); }},
      `@${each.name}`, make("small", {}, `${each.code.length} instructions${spent(each) ? `, ${seconds(spent(each))}` : ""}`), meter);
  }));
  const hottest = Math.max(...fn.code.map(line => line[6]), 1e-12);
  const lines = fn.code.map(([offset, op, args, source, isTarget, key, taken, calls]) => {
    const bar = make("i");
    bar.style.width = `${84 * taken / hottest}px`;
    const heatCell = make("span", {class: "heat", title: taken ? `${seconds(taken)}, ${calls} times` : ""}, ...(taken ? [bar, make("span", {}, seconds(taken))] : []));
    return make("div", {class: `line${isTarget ? " target" : ""}${key && state.picked?.key === key ? " picked" : ""}`, "data-node": key, "data-offset": offset},
      make("b", {}, offset), heatCell, make("span", {class: "op"}, op), make("span", {class: "args", title: args}, args), make("span", {class: "source", title: source}, source));
  });
  const text = make("div", {class: "text code of", "data-program": state.program, "data-shown": "", tabindex: 0}, ...lines);
  text.addEventListener("click", event => {
    const key = event.target.closest(".line")?.dataset.node;
    if (key) pick(key);
  });
  text.addEventListener("dblclick", event => { if (event.target.closest(".line")?.dataset.node) show("graph"); });
  one("#tab-code .reader").replaceChildren(
    make("div", {class: "head"}, make("code", {}, fn.signature), make("small", {}, `${fn.registers}. Click: the node; double click: the graph.`)), text);
}

function openCode(fn, offset) {
  state.fn[state.program] = fn;
  show("code");
  one(`#tab-code [data-offset="${offset}"]`)?.scrollIntoView({block: "center"});
}

// ---- kernels ----

const WORDS = {
  python: /("""[\s\S]*?"""|"[^"\n]*"|#.*)|\b(def|for|in|range|if|elif|else|while|return|and|or|not|break|continue|True|False|None|pass)\b|\b(\d[\w.]*)|\b([a-z_]\w*)(?=\()/g,
  llvm: /(;.*)|\b(define|declare|ret|br|label|load|store|call|phi|select|icmp|fcmp|add|sub|mul|fadd|fmul|fsub|getelementptr|inbounds|bitcast|tail|private|constant|switch|unreachable)\b|\b(\d[\w.]*)|([%@][\w.$-]+)/g,
  asm: /(#.*|\/\/.*)|^\s+([a-z][\w.]+)|(\$?-?\b\d\w*)|([%.]\w+)/gm,
};

function coloured(text, form) {
  const lines = [make("span")];
  const put = (piece, kind) => piece.split("\n").forEach((part, number) => {
    if (number) lines.push(make("span"));
    if (part) lines.at(-1).append(kind ? make("span", {class: kind}, part) : part);
  });
  let at = 0;
  for (const found of text.matchAll(WORDS[form])) {
    put(text.slice(at, found.index), "");
    put(found[0], found[1] ? "remark" : found[2] ? "keyword" : found[3] ? "number" : "name");
    at = found.index + found[0].length;
  }
  put(text.slice(at), "");
  return lines.map((line, number) => make("div", {class: "line"}, make("b", {}, number + 1), line));
}

async function drawKernels(form = state.form ?? "python") {
  const {kernels} = facts.programs[state.program];
  state.form = form;
  state.texts ??= unpacked("texts");
  const texts = (await state.texts)[state.program], name = state.kernel[state.program] ?? kernels[0]?.name, kernel = kernels.find(each => each.name === name);
  const most = Math.max(...kernels.map(each => each.seconds), 1e-12);
  one("#tab-kernels .list").replaceChildren(...kernels.map(each => {
    const meter = make("i", {class: "meter"});
    meter.style.width = `${100 * each.seconds / most}%`;
    return make("button", {type: "button", "aria-current": each.name === name, title: each.name, onclick: () => openKernel(each.name)},
      each.name, make("small", {}, each.seconds ? `${seconds(each.seconds)} in ${each.calls} call${each.calls === 1 ? "" : "s"}` : each.operators), meter);
  }));
  if (!kernel) return one("#tab-kernels .reader").replaceChildren(make("p", {class: "absent"}, "The program has no kernels."));
  const forms = {python: "Python", llvm: "LLVM", asm: "Assembly"}, text = texts[name]?.[form] ?? "there is none";
  const buttons = Object.entries(forms).map(([each, title]) => make("button", {type: "button", "aria-pressed": each === form, "data-form": each, onclick: () => drawKernels(each)}, title));
  const uses = Object.entries(facts.programs[state.program].nodes).filter(([, node]) => node.kernel === name);
  const links = uses.slice(0, 6).map(([key, node]) => make("button", {class: "link", type: "button", onclick: () => { show("graph"); pick(key); }}, node.origin || node.label));
  one("#tab-kernels .reader").replaceChildren(
    make("div", {class: "head"}, make("code", {}, kernel.operators), make("small", {}, `${uses.length} place${uses.length === 1 ? "" : "s"}`), ...links, make("div", {class: "forms"}, ...buttons)),
    make("div", {class: "text", tabindex: 0}, ...coloured(text, form)));
}

function openKernel(name) {
  state.kernel[state.program] = name;
  show("kernels");
}

// ---- timelines and flame graphs ----

/* Lets a picture of spans be zoomed in time; `left` is where time begins. */
function zoomable(svg, left, right, isFlame) {
  const spans = all(".mark", svg).map(mark => {
    const rect = one("rect", mark), text = one("text", mark);
    return {mark, rect, text, x: +rect.getAttribute("x"), width: +rect.getAttribute("width"), name: mark.dataset.name};
  });
  const lines = all(":scope > path", svg), labels = all(":scope > text", svg).slice(0, lines.length), whole = +svg.dataset.seconds;
  let from = left, to = right;
  const draw = () => {
    const factor = (right - left) / (to - from);
    for (const span of spans) {
      const {mark, rect, x, width, name} = span;
      const begin = Math.max(left, left + (x - from) * factor), end = Math.min(right, left + (x + width - from) * factor);
      mark.style.display = end > left && begin < right ? "" : "none";
      rect.setAttribute("x", begin);
      rect.setAttribute("width", Math.max(.3, end - begin));
      const room = Math.floor((end - begin - 6) / 6);
      if (!span.text && room > 3) {
        span.text = document.createElementNS(svg.namespaceURI, "text");
        for (const [key, value] of Object.entries({y: +rect.getAttribute("y") + 13, "font-size": 10.5, fill: "#fff"})) span.text.setAttribute(key, value);
        mark.append(span.text);
      }
      if (span.text) {
        span.text.setAttribute("x", begin + 4);
        span.text.textContent = name.length <= room ? name : room > 2 ? `${name.slice(0, room - 1)}…` : "";
      }
    }
    const second = whole / (right - left), values = ticks((from - left) * second, (to - left) * second, lines.length - 1);
    lines.forEach((line, k) => {  // the axis of a timeline
      const x = left + (values[k] / second + left - from) * factor;
      for (const part of [line, labels[k]]) part.style.display = k < values.length ? "" : "none";
      if (k >= values.length) return;
      line.setAttribute("d", line.getAttribute("d").replace(/^M[\d.]+/, `M${x}`));
      labels[k].setAttribute("x", Math.min(x, right - 16));
      labels[k].textContent = seconds(values[k]);
    });
  };
  const set = (begin, end) => {
    const width = Math.min(Math.max(end - begin, (right - left) / 5e4), right - left);
    from = Math.min(Math.max(begin, left), right - width);
    to = from + width;
    draw();
  };
  const at = event => {
    const box = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
    return from + ((event.clientX - box.left) / box.width * width - left) * (to - from) / (right - left);
  };
  svg.addEventListener("wheel", event => {
    if (!event.deltaY) return;
    event.preventDefault();
    const factor = Math.exp(event.deltaY * .0016), middle = at(event);
    set(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }, {passive: false});
  let last = null, isMoved = false;
  svg.addEventListener("pointerdown", event => { last = at(event); isMoved = false; });
  svg.addEventListener("pointermove", event => {
    if (last === null || !event.buttons) return;
    const shift = last - at(event);
    if (Math.abs(shift) * (right - left) / (to - from) < 4 && !isMoved) return;
    isMoved = true;
    set(from + shift, to + shift);
  });
  svg.addEventListener("pointerup", event => {
    last = null;
    const span = spans.find(each => each.mark === event.target.closest?.(".mark"));
    if (!isMoved && isFlame && span) set(span.x, span.x + span.width);
  });
  svg.addEventListener("dblclick", () => set(left, right));
}

// ---- tables ----

const plain = text => {
  const found = text.trim().match(/^[-+]?[\d.]+(e[-+]?\d+)?/i), units = {kB: 1e3, MB: 1e6, GB: 1e9, µs: 1e-6, ms: 1e-3};
  return found ? +found[0] * (units[text.trim().slice(found[0].length).trim()] ?? 1) : text.trim() === "" ? -Infinity : NaN;
};

function sortable(table) {
  all("th", table).forEach((head, column) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending", body = one("tbody", table);
    for (const other of all("th", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = [...body.rows].map(row => [row.cells[column].textContent, row]);
    keyed.sort(([a], [b]) => {
      const [x, y] = [plain(a), plain(b)], order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
      return down ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row));
  }));
}

function filterable(input) {
  const rows = all("tbody tr", input.parentElement);
  input.addEventListener("input", () => {
    const terms = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !terms.every(term => [row.textContent, ...all("[data-tip]", row).map(each => each.dataset.tip)].join(" ").toLowerCase().includes(term));
  });
}

// ---- hints, keys ----

function setUpHints() {
  for (const title of all("svg title")) {
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }
  const tip = make("div", {id: "tip", hidden: ""});
  document.body.append(tip);
  document.addEventListener("pointermove", event => {
    const text = event.target.closest?.("[data-tip]")?.dataset.tip;
    tip.hidden = !text || event.buttons > 0;
    if (tip.hidden) return;
    tip.textContent = text;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  });
}

const KEYS = [
  ["1 … 9", "parts of the page"], ["/", "find nodes"], ["Enter, Shift+Enter", "next and previous that was found"], ["c", "colour by something else"],
  ["Enter, arrows", "the first node, along the edges of the graph"], ["+  −  0", "closer, further away, the whole graph"], ["b", "bytecode of the selected node"],
  ["k", "its kernel"], ["g", "the graph"], ["p", "the next program"], ["t", "light or dark"], ["Esc", "select nothing"], ["?", "this list"],
];

function setUpKeys() {
  const help = make("dialog", {"aria-label": "keys"}, make("h2", {}, "Keys"),
    make("table", {}, ...KEYS.map(([key, what]) => make("tr", {}, make("td", {}, make("kbd", {}, key)), make("td", {}, what)))));
  document.body.append(help);
  help.addEventListener("click", () => help.close());
  one("#keys").addEventListener("click", () => help.showModal());
  const tabs = all("nav button").map(button => button.dataset.tab);
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    const node = nodeOf(state.picked), actions = {
      "/": () => { show("graph"); one("#query").focus(); },
      "?": () => (help.open ? help.close() : help.showModal()),
      "c": () => { const names = Object.keys(MODES); state.mode = names[(names.indexOf(state.mode) + 1) % names.length]; one("#mode").value = state.mode; recolour(); },
      "b": () => node?.place && (choose(state.picked.program), openCode(...node.place)),
      "k": () => node?.kernel && (choose(state.picked.program), openKernel(node.kernel)),
      "g": () => show("graph"),
      "p": () => choose((state.program + 1) % facts.programs.length),
      "t": turnTheme,
      "Escape": () => pick(null),
    };
    const isOfTabs = event.target.matches("nav button") && {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (isOfTabs) {
      show(tabs[(tabs.indexOf(state.tab) + isOfTabs + tabs.length) % tabs.length]);
      one(`nav [data-tab="${state.tab}"]`).focus();
    } else if (/^[1-9]$/.test(event.key) && tabs[event.key - 1]) show(tabs[event.key - 1]);
    else if (event.key in actions) actions[event.key]();
    else return;
    event.preventDefault();
  });
}

async function begin() {
  facts = await unpacked("facts");
  setUpHints();
  setUpGraph();
  setUpReader("code", "functions");
  setUpReader("kernels", "kernels");
  setUpKeys();
  for (const button of all("nav button")) button.addEventListener("click", () => show(button.dataset.tab));
  for (const button of all(".program")) button.addEventListener("click", () => choose(+button.dataset.program));
  one("#theme").addEventListener("click", turnTheme);
  for (const svg of all("svg.timeline")) zoomable(svg, 110, svg.viewBox.baseVal.width - 8, false);
  for (const svg of all("svg.flame")) zoomable(svg, 1, svg.viewBox.baseVal.width - 1, true);
  for (const table of all("table.sortable")) sortable(table);
  for (const input of all(".filter")) filterable(input);
  document.addEventListener("click", event => {
    const mark = event.target.closest?.("[data-node]");
    if (!mark || mark.closest(".views, .code")) return;
    const panel = mark.closest(".of"), program = panel ? +panel.dataset.program : 0;
    pick(mark.dataset.node, program);
    if (mark.matches(".go") || event.detail > 1 || mark.closest(".bars, .roofline, .memory")) show("graph");
    if (mark.matches(".go")) { state.mode = one("#mode").value = "error"; recolour(); }
    if (state.tab === "graph") pick(mark.dataset.node, program);
  });
  describe();
  choose(0);
  const wanted = location.hash.slice(1);
  show(one(`#tab-${CSS.escape(wanted)}`) ? wanted : document.body.dataset.start);
  document.documentElement.dataset.ready = "";
}

begin();
