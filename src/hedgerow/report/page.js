"use strict";
(() => {
  const { label, classes, columns, nodes } = JSON.parse(document.getElementById("data").textContent);
  const parent = new Int32Array(nodes.length).fill(-1);
  const isLeaf = (i) => nodes[i].left === undefined;
  nodes.forEach((node, i) => { if (!isLeaf(i)) parent[node.left] = parent[node.right] = i; });
  const leavesBelow = new Int32Array(nodes.length).fill(1); // nodes are in depth-first order
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (!isLeaf(i)) leavesBelow[i] = leavesBelow[nodes[i].left] + leavesBelow[nodes[i].right];
  }
  const allRows = Math.max(nodes[0].rows, 1e-9);
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const about = (rows) => Math.round(rows).toLocaleString("en");
  const tint = (k) => (k < 8 ? `c${k}` : "c-other");

  /** An element with attributes and children; text is always text, never markup. */
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    return furnish(element, attributes, children);
  }
  function draw(name, attributes = {}, ...children) {
    return furnish(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }
  function furnish(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== undefined) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }
  const byId = (id) => document.getElementById(id);

  // Routing: as the library does it, from the same numbers.

  /** The bin of what a field holds; null if a number cannot be read. */
  function binOf({ column, input }, single) {
    const text = input.value;
    if (column.cuts) {
      let x = readNumber(text);
      if (x === null) return null;
      if (single) x = Math.fround(x);
      if (Number.isNaN(x)) return column.missingBin;
      let low = 0, high = column.cuts.length; // the number of cuts below x
      while (low < high) {
        const middle = (low + high) >> 1;
        if (x > column.cuts[middle]) low = middle + 1; else high = middle;
      }
      return low;
    }
    if (input.options) return text === "" ? column.missingBin : Number(text);
    const known = column.categories.indexOf(text);
    if (known >= 0) return known;
    return text === "" ? column.missingBin : column.otherBin;
  }

  function readNumber(text) {
    const plain = text.trim().toLowerCase();
    if (plain === "" || plain === "nan") return NaN;
    const infinite = /^([+-]?)inf(inity)?$/.exec(plain);
    if (infinite) return infinite[1] === "-" ? -Infinity : Infinity;
    return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(plain) ? Number(plain) : null;
  }

  const goesLeft = (node, bin) => (node.first <= bin && bin <= node.last) || bin === node.also;

  function pathOf(bins) {
    const path = [0];
    for (let i = 0; !isLeaf(i);) {
      i = goesLeft(nodes[i], bins[nodes[i].column]) ? nodes[i].left : nodes[i].right;
      path.push(i);
    }
    return path;
  }

  const wayTo = (i) => (i === 0 ? [0] : [...wayTo(parent[i]), i]);

  /** Whether the noise could have changed the most frequent class. */
  function isUnsure(node) {
    return node.low !== undefined && classes.some((_, k) => k !== node.best && node.high[k] >= node.low[node.best]);
  }

  // The drawing: cards from left to right, in a box that scrolls.

  const CARD = { width: 190, height: 50 }, STEP = { x: 246, y: 62 }, MARGIN = 24;
  const box = byId("drawing");
  const open = new Set();
  let selected = 0, followed = new Set(), zoom = 1, size = [0, 0];
  let visible = [], items = new Map(), places = new Map(), svg = null;

  const pen = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  function fitText(text, size, weight) {
    const room = CARD.width - 24;
    pen.font = `${weight} ${size}px ${family}`;
    if (pen.measureText(text).width <= room) return text;
    let kept = [...text];
    while (kept.length > 1 && pen.measureText(`${kept.join("")}…`).width > room) kept.pop();
    return `${kept.join("")}…`;
  }

  function openLargest(mostLeaves) {
    open.clear();
    const closed = isLeaf(0) ? [] : [0];
    for (let leaves = 1; closed.length && leaves < mostLeaves; leaves++) {
      closed.sort((a, b) => nodes[a].rows - nodes[b].rows);
      const i = closed.pop();
      open.add(i);
      for (const child of [nodes[i].left, nodes[i].right]) if (!isLeaf(child)) closed.push(child);
    }
  }

  function layout() {
    visible = [];
    places = new Map();
    let row = 0, deepest = 0;
    const stack = [[0, 0]];
    while (stack.length) {
      const [i, depth] = stack.pop();
      visible.push(i);
      deepest = Math.max(deepest, depth);
      places.set(i, { x: MARGIN + depth * STEP.x, y: 0, depth });
      if (open.has(i)) stack.push([nodes[i].right, depth + 1], [nodes[i].left, depth + 1]);
      else places.get(i).y = MARGIN + STEP.y * (row++ + 0.5);
    }
    for (const i of [...visible].reverse()) {
      if (open.has(i)) places.get(i).y = (places.get(nodes[i].left).y + places.get(nodes[i].right).y) / 2;
    }
    const tail = visible.some((i) => !isLeaf(i) && !open.has(i)) ? 70 : 0; // room for "12 leaves"
    size = [2 * MARGIN + deepest * STEP.x + CARD.width + tail, 2 * MARGIN + row * STEP.y];
  }

  function redraw() {
    layout();
    const hadFocus = box.contains(document.activeElement);
    const edges = draw("g", { "aria-hidden": "true" });
    const cards = draw("g", { role: "presentation" });
    items = new Map();
    for (const i of visible) {
      if (open.has(i)) edges.append(...edge(i, nodes[i].left, "yes"), ...edge(i, nodes[i].right, "no"));
      const item = card(i);
      items.set(i, item);
      cards.append(item);
    }
    if (!items.has(selected)) selected = wayTo(selected).filter((i) => items.has(i)).pop();
    svg = draw("svg", { role: "tree", "aria-label": `Decision tree for ${label}`, viewBox: `0 0 ${size[0]} ${size[1]}` }, edges, cards);
    box.replaceChildren(svg);
    applyZoom();
    mark();
    if (hadFocus) items.get(selected).focus({ preventScroll: true });
  }

  function edge(from, to, answer) {
    const a = places.get(from), b = places.get(to), x = a.x + CARD.width, middle = (x + b.x) / 2;
    const on = followed.has(to) ? " on" : "";
    return [
      draw("path", {
        class: `edge${on}`, d: `M${x} ${a.y}C${middle} ${a.y} ${middle} ${b.y} ${b.x} ${b.y}`,
        "stroke-width": Math.max(1.4, 14 * Math.min(1, nodes[to].rows / allRows)).toFixed(2),
      }),
      draw("text", { class: "answer", x: b.x - 8, y: b.y - 11, "text-anchor": "end" }, answer),
    ];
  }

  function card(i) {
    const node = nodes[i], { x, y, depth } = places.get(i), leaf = isLeaf(i);
    const title = leaf ? `${label}: ${classes[node.best]}` : node.question;
    const share = `${percent(node.rows / allRows)} of rows` + (leaf ? `, ${percent(node.shares[node.best])} ${classes[node.best]}` : "");
    const kinds = ["item", leaf && "leaf", leaf && isUnsure(node) && "unsure", followed.has(i) && "on"];
    const item = draw("g", {
      class: kinds.filter(Boolean).join(" "), role: "treeitem", tabindex: -1, transform: `translate(${x} ${y - CARD.height / 2})`,
      "aria-level": depth + 1, "aria-expanded": leaf ? undefined : open.has(i), "data-node": i,
    },
      draw("title", {}, `${side(i)}${title}, ${share}`), // names the node for everybody; the rest is its picture
      draw("rect", { class: "box", width: CARD.width, height: CARD.height, rx: 6 }),
      draw("text", { class: "question", "aria-hidden": "true", x: 11, y: 19 }, fitText(title, 13, 600)),
      draw("text", { class: "small", "aria-hidden": "true", x: 11, y: 35 }, fitText(share, 11.5, 400)),
      ...band(node.shares, 11, CARD.height - 10, CARD.width - 22, 5),
    );
    if (!leaf) {
      const toggle = draw("g", { class: "toggle", "aria-hidden": "true", transform: `translate(${CARD.width} ${CARD.height / 2})` },
        draw("circle", { r: 9 }), draw("text", { y: 4 }, open.has(i) ? "−" : "+"));
      toggle.addEventListener("click", (event) => { event.stopPropagation(); if (!moved) { select(i); flip(i); } });
      item.append(toggle);
      if (!open.has(i)) toggle.append(draw("text", { class: "below", x: 15, y: 4 }, `${leavesBelow[i]} leaves`));
    }
    item.addEventListener("click", () => { if (!moved) { select(i); item.focus({ preventScroll: true }); } });
    return item;
  }

  const side = (i) => (i === 0 ? "" : nodes[parent[i]].left === i ? "Yes: " : "No: ");

  function band(shares, x, y, width, height) {
    const parts = [];
    shares.forEach((share, k) => {
      if (share > 0) parts.push(draw("rect", { class: tint(k), x: x.toFixed(2), y, width: (share * width).toFixed(2), height }));
      x += share * width;
    });
    return parts;
  }

  function applyZoom() {
    svg.setAttribute("width", size[0] * zoom);
    svg.setAttribute("height", size[1] * zoom);
  }

  /** Zoom about a point of the box, by default its middle. */
  function zoomTo(wanted, x = box.clientWidth / 2, y = box.clientHeight / 2) {
    const next = Math.min(2.5, Math.max(0.05, wanted)), ratio = next / zoom;
    const left = (box.scrollLeft + x) * ratio - x, top = (box.scrollTop + y) * ratio - y;
    zoom = next;
    applyZoom();
    box.scrollTo({ left, top, behavior: "instant" });
  }

  const fitting = () => Math.min(box.clientWidth / size[0], box.clientHeight / size[1]);

  function bringIntoView(i) {
    const { x, y } = places.get(i), middle = [(x + CARD.width / 2) * zoom, y * zoom];
    box.scrollTo({ left: middle[0] - box.clientWidth / 2, top: middle[1] - box.clientHeight / 2, behavior: "instant" });
  }

  function keepInView(i) {
    const { x, y } = places.get(i), room = 30;
    const at = { left: x * zoom, right: (x + CARD.width) * zoom, top: (y - CARD.height / 2) * zoom, bottom: (y + CARD.height / 2) * zoom };
    let left = box.scrollLeft, top = box.scrollTop;
    left = Math.min(Math.max(left, at.right + room - box.clientWidth), at.left - room);
    top = Math.min(Math.max(top, at.bottom + room - box.clientHeight), at.top - room);
    box.scrollTo({ left, top, behavior: "instant" });
  }

  function mark() {
    for (const [i, item] of items) {
      item.classList.toggle("selected", i === selected);
      item.setAttribute("tabindex", i === selected ? 0 : -1);
      item.setAttribute("aria-selected", i === selected);
    }
  }

  function select(i, row = null) {
    selected = i;
    mark();
    describe(i, row);
  }

  /** Open or close a node, and leave it where it is on the screen. */
  function flip(i) {
    const before = places.get(i).y * zoom - box.scrollTop;
    if (!open.delete(i)) open.add(i);
    redraw();
    box.scrollTop = places.get(i).y * zoom - before;
    keepInView(i);
  }

  function walk(i) {
    select(i);
    items.get(i).focus({ preventScroll: true });
    keepInView(i);
  }

  box.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = visible.indexOf(selected), leaf = isLeaf(selected), isOpen = open.has(selected);
    const moves = {
      ArrowDown: () => at + 1 < visible.length && walk(visible[at + 1]),
      ArrowUp: () => at > 0 && walk(visible[at - 1]),
      ArrowRight: () => !leaf && (isOpen ? walk(nodes[selected].left) : flip(selected)),
      ArrowLeft: () => (isOpen ? flip(selected) : selected !== 0 && walk(parent[selected])),
      Home: () => walk(0),
      End: () => walk(visible[visible.length - 1]),
      Enter: () => !leaf && flip(selected),
      " ": () => !leaf && flip(selected),
      "+": () => zoomTo(zoom * 1.25),
      "-": () => zoomTo(zoom / 1.25),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  });

  let grip = null, moved = false;
  box.addEventListener("pointerdown", (event) => {
    moved = false;
    if (event.pointerType === "mouse" && event.button === 0) grip = { x: event.clientX, y: event.clientY, left: box.scrollLeft, top: box.scrollTop };
  });
  window.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const dx = event.clientX - grip.x, dy = event.clientY - grip.y;
    if (!moved && Math.hypot(dx, dy) < 5) return;
    moved = true;
    box.classList.add("moving");
    box.scrollTo({ left: grip.left - dx, top: grip.top - dy, behavior: "instant" });
  });
  window.addEventListener("pointerup", () => { grip = null; box.classList.remove("moving"); });
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = box.getBoundingClientRect();
    zoomTo(zoom * Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });

  byId("in").addEventListener("click", () => zoomTo(zoom * 1.25));
  byId("out").addEventListener("click", () => zoomTo(zoom / 1.25));
  byId("fit").addEventListener("click", () => { zoomTo(Math.min(1.25, fitting())); box.scrollTo(0, 0); });
  byId("expand").addEventListener("click", () => { nodes.forEach((_, i) => { if (!isLeaf(i)) open.add(i); }); redraw(); keepInView(selected); });
  byId("collapse").addEventListener("click", () => { open.clear(); redraw(); select(selected); keepInView(0); });

  // A node in words, and the row that led to it.

  function describe(i, row) {
    const node = nodes[i], leaf = isLeaf(i), panel = byId("node");
    panel.dataset.node = i;
    const predicted = make("data", { value: node.best, class: "prediction" }, classes[node.best]);
    const head = row || leaf ? make("h3", {}, `${label}: `, predicted) : make("h3", {}, `${node.question}?`);
    const reach = node.reach >= 0.5 ? ` ± ${about(node.reach)}` : "";
    const parts = [head, make("p", {}, `${percent(node.rows / allRows)} of the rows, about ${about(node.rows)}${reach}, ${row ? "go the same way" : "come here"}.`)];
    parts.push(make("h4", {}, "Class shares"), shareList(node));
    if (isUnsure(node)) parts.push(make("p", { class: "quiet" }, "The noise is large enough here that another class could be the most frequent."));
    const way = wayTo(i);
    parts.push(make("h4", {}, row ? "The way of this row" : "The way here"));
    if (way.length === 1) parts.push(make("p", {}, "All rows start here."));
    else parts.push(make("ol", {}, ...way.slice(1).map((step) => wayStep(step, row))));
    panel.replaceChildren(...parts);
  }

  function wayStep(i, row) {
    const above = nodes[parent[i]], words = above.left === i ? above.yes : above.no;
    if (!row) return make("li", {}, words);
    return make("li", {}, words, make("span", { class: "quiet" }, ` (here ${row[above.column]})`));
  }

  const SHOWN = 10;
  function shareList(node) {
    const order = classes.map((_, k) => k);
    if (classes.length > SHOWN) order.sort((a, b) => node.shares[b] - node.shares[a] || a - b);
    const lines = order.slice(0, SHOWN).map((k) => {
      const share = node.shares[k], bar = draw("svg", { "aria-hidden": "true" },
        draw("rect", { class: "track", width: "100%", height: 10, y: 3, rx: 2 }),
        draw("rect", { class: tint(k), width: percent(share), height: 10, y: 3, rx: 2 }));
      const line = make("li", k === node.best ? { class: "best" } : {},
        make("span", {}, classes[k]), make("data", { value: share, "data-class": k }, percent(share)), bar);
      if (node.low !== undefined && node.high[k] - node.low[k] >= 0.0005) {
        const [low, high] = [percent(node.low[k]), percent(node.high[k])];
        bar.append(draw("line", { class: "whisker", x1: low, x2: high, y1: 8, y2: 8 }),
          draw("line", { class: "whisker", x1: low, x2: low, y1: 2, y2: 14 }), draw("line", { class: "whisker", x1: high, x2: high, y1: 2, y2: 14 }));
        line.append(make("span", { class: "quiet" }, `${low} to ${high}`));
      }
      return line;
    });
    const rest = order.slice(SHOWN);
    if (rest.length) {
      const together = rest.reduce((sum, k) => sum + node.shares[k], 0);
      lines.push(make("li", {}, make("span", {}, `${rest.length} more`), make("span", {}, percent(together))));
    }
    return make("ul", { class: "shares" }, ...lines);
  }

  // The form.

  const asked = new Set(nodes.filter((node) => node.left !== undefined).map((node) => node.column));
  const LISTED = 200; // categories; more are typed
  const fields = columns.map((column, c) => {
    const id = `field-${c}`, hint = make("span", { class: "hint", id: `${id}-hint` });
    const attributes = { id, "aria-describedby": hint.id };
    let input, usual = "";
    if (column.cuts) {
      usual = `${column.low} to ${column.high}`;
      input = make("input", { ...attributes, inputmode: "decimal" });
    } else if (column.categories.length <= LISTED) {
      input = make("select", attributes, make("option", { value: "" }, "(missing)"),
        ...column.categories.map((category, bin) => make("option", { value: bin }, category)), make("option", { value: column.otherBin }, "(another value)"));
    } else {
      usual = `one of ${column.categories.length.toLocaleString("en")} categories`;
      input = make("input", attributes);
    }
    hint.textContent = usual;
    byId(asked.has(c) ? "fields" : "unused-fields").append(make("div", { class: "field" }, make("label", { for: id }, column.name), input, hint));
    return { column, input, hint, usual };
  });
  byId("unused").hidden = asked.size === columns.length;

  /** What the library makes of a value that is not in the schema. */
  function remark({ column, input, usual }, bin) {
    const text = input.value;
    if (bin === null) return "Not a number; write for example 38.5";
    if (column.cuts) {
      const x = readNumber(text);
      if (Number.isNaN(x)) return column.declaresMissing ? "Missing" : "Missing: taken as the lowest";
      if (x < column.low) return `Below ${column.low}: taken as the lowest`;
      if (x > column.high) return `Above ${column.high}: taken as the highest`;
    } else if (bin === column.otherBin && text !== "") return "Not in the schema: no is the answer to every question";
    else if (text === "" && !column.declaresMissing && bin === column.missingBin) return "Missing: taken as another value";
    return usual;
  }

  const shownValue = ({ input }) => {
    if (input.value === "") return "missing";
    return input.options ? input.options[input.selectedIndex].textContent : input.value.trim();
  };

  function follow() {
    const single = byId("single").checked;
    const bins = fields.map((field) => binOf(field, single));
    fields.forEach((field, c) => {
      field.input.setAttribute("aria-invalid", bins[c] === null);
      field.hint.classList.toggle("wrong", bins[c] === null);
      field.hint.textContent = remark(field, bins[c]);
    });
    const wrong = bins.indexOf(null);
    if (wrong >= 0) {
      forget();
      byId("node").replaceChildren(make("p", {}, `${columns[wrong].name} is not a number, so this row has no way through the tree.`));
      delete byId("node").dataset.node;
      byId("unused").open ||= !asked.has(wrong);
      fields[wrong].input.focus();
      return;
    }
    const path = pathOf(bins), leaf = path[path.length - 1];
    followed = new Set(path);
    path.slice(0, -1).forEach((i) => open.add(i));
    redraw();
    select(leaf, fields.map(shownValue));
    bringIntoView(leaf);
  }

  function forget() {
    followed = new Set();
    redraw();
  }

  let following = false;
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    following = true;
    follow();
    byId("node").scrollIntoView({ block: "nearest" });
  });
  byId("form").addEventListener("change", () => { if (following) follow(); });
  byId("form").addEventListener("reset", () => {
    following = false;
    for (const { input, hint, usual } of fields) {
      input.removeAttribute("aria-invalid");
      hint.classList.remove("wrong");
      hint.textContent = usual;
    }
    forget();
    select(0);
  });

  // Colours.

  const theme = byId("theme"), prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  function nameTheme() {
    const other = isDark() ? "light" : "dark";
    theme.textContent = `${other[0].toUpperCase()}${other.slice(1)}`;
    theme.setAttribute("aria-label", `Switch to ${other} colours`);
  }
  theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
  prefersDark.addEventListener("change", nameTheme);
  nameTheme();

  byId("classes").append(...classes.slice(0, 8).map((name, k) => make("li", {}, draw("svg", { class: "key", "aria-hidden": "true" }, draw("rect", { class: tint(k), width: "100%", height: "100%" })), name)));
  if (classes.length > 8) byId("classes").append(make("li", {}, `and ${classes.length - 8} more`));

  openLargest(10);
  layout();
  zoom = Math.min(1, Math.max(0.8, fitting()));
  redraw();
  select(0);
  bringIntoView(0);
  document.documentElement.dataset.ready = performance.now();
})();
