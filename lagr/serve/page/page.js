// The page: sends a sentence, shows what it was understood as. Whatever comes from outside is set as text, never as HTML.

import { showAnswer } from "./answer.js";

const at = (id) => document.getElementById(id);
const ALTERNATIVES = 5;
const TOGETHER = "The edges of this graph were chosen together, so that each node has those that such nodes have.";
const WORTH_TELLING = 0.0005; // what is less likely reads "< 0.1 %"

function make(name, text = "", className = "") {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function percent(probability) {
  if (probability > 1 - WORTH_TELLING) return "> 99.9 %";
  if (probability < WORTH_TELLING) return "< 0.1 %";
  return `${(100 * probability).toFixed(1)} %`;
}

const named = (label) => (label === null ? make("span", "nothing", "nothing") : make("span", label));

function say(message, wrong = false) {
  at("status").textContent = message;
  at("status").classList.toggle("wrong", wrong);
}

// Asking

let running = new AbortController();
let shown = ""; // the sentence whose parse is on the page
let endpoint = "parse"; // or ask, where the service has a store to answer from

async function parse(text) {
  running.abort(); // the service drops what nobody waits for
  const mine = (running = new AbortController());
  document.querySelector("main").classList.add("waiting");
  try {
    const answer = await fetch(endpoint, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ text, alternatives: ALTERNATIVES, svg: true }),
      signal: mine.signal,
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.detail);
    shown = text;
    show(text, found.parse ?? found.parses[0]);
    if (endpoint === "ask") say(showAnswer(found, ask));
  } catch (error) {
    if (mine.signal.aborted) return;
    at("result").hidden = true;
    say(error instanceof TypeError ? "The service can't be reached." : error.message, true);
  }
  document.querySelector("main").classList.remove("waiting");
}

// A link holds the sentence after its #, which browsers don't send to the service.

function sentenceOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // somebody has cut the link
  }
}

function followAddress() {
  const text = sentenceOfAddress();
  if (!text || text === shown) return;
  at("text").value = text;
  parse(text);
}

function submit(text) {
  if (!text.trim()) return say(`Type ${at("what").textContent.toLowerCase()} first.`, true);
  if (text !== sentenceOfAddress()) history.pushState(null, "", "#" + encodeURIComponent(text));
  parse(text);
}

function ask(text) {
  at("text").value = text;
  submit(text);
}

// Showing

function show(text, parsed) {
  const parts = partsOf(parsed);
  at("about").hidden = true;
  at("result").hidden = false;
  at("whole").textContent = `Probability of the whole: ${percent(parsed.probability)}`;
  const unknown = [...new Set(parsed.unknown.map((position) => `“${parsed.tokens[position]}”`))];
  at("unknown").textContent = unknown.length ? `Training has not seen ${unknown.join(", ")}.` : "";
  at("form").textContent = parsed.form ?? "";
  at("problem").textContent = parsed.problem ?? "";
  at("form").closest("section").hidden = parsed.form === null && parsed.problem === null;
  at("copy-form").hidden = parsed.form === null;
  at("curl").textContent = curl(text);
  draw(parsed, parts);
  fill("nodes", parts.filter((part) => part.kind === "node"), (part) => [part.word, part.slot, part.label]);
  fill("edges", parts.filter((part) => part.kind === "edge"), (part) => [part.from, part.label, part.to]);
  const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
  const graph = parsed.nodes.length || !parsed.graph ? parsed : parsed.graph;
  say(`${count(graph.nodes.length, "node")}, ${count(graph.edges.length, "edge")}.`);
  document.dispatchEvent(new CustomEvent("parsed", { detail: { text, parsed } }));
}

// Every node, empty slot and edge, in the order in which arrow keys visit them: from left to right, edges after their source.
function partsOf(parsed) {
  if (!parsed.nodes.length && parsed.graph) return partsOfGraph(parsed.graph);
  const choices = parsed.alternatives ?? { slots: [], edges: [] };
  const word = (slot) => parsed.tokens[Math.floor(slot / parsed.graph_layers)];
  const parts = parsed.nodes.map((node, number) => ({
    kind: "node", number, slot: node.slot, label: node.label, probability: node.probability, word: word(node.slot),
    choices: choices.slots[node.slot] ?? [], where: `over “${word(node.slot)}”, slot ${node.slot}`,
  }));
  const taken = new Set(parsed.nodes.map((node) => node.slot));
  choices.slots.forEach((some, slot) => {
    if (taken.has(slot)) return;
    parts.push({
      kind: "slot", number: slot, slot, label: null, probability: some[0]?.probability ?? 0, word: word(slot),
      choices: some, where: `over “${word(slot)}”, slot ${slot}`,
    });
  });
  parsed.edges.forEach((edge, number) => {
    const [from, to] = [parsed.nodes[edge.source], parsed.nodes[edge.target]];
    parts.push({
      kind: "edge", number, slot: from.slot, label: edge.label, probability: edge.probability, from: from.label, to: to.label,
      ends: [edge.source, edge.target], together: choices.edges_together, choices: choices.edges[number] ?? [], where: `from ${from.label} to ${to.label}`,
    });
  });
  return parts.sort((one, other) => one.slot - other.slot || (one.kind === "edge") - (other.kind === "edge"));
}

// Of a parser that writes forms there are no slots and no probabilities of parts.
function partsOfGraph(graph) {
  const nodes = graph.nodes.map((label, number) => ({ kind: "node", number, label, choices: [] }));
  const edges = graph.edges.map(([source, label, target], number) => (
    { kind: "edge", number, label, from: graph.nodes[source], to: graph.nodes[target], choices: [] }
  ));
  return [...nodes, ...edges];
}

const likely = (choice) => choice.probability >= WORTH_TELLING;
const others = (part) => part.choices.filter((choice) => choice.label !== part.label && likely(choice));

const listed = (choices) => choices.map(({ label, probability }) => `${label ?? "nothing"} ${percent(probability)}`).join(", ");

function inWords(part) {
  const sure = part.probability === undefined ? "" : `, ${percent(part.probability)}`;
  const what = part.kind === "slot" ? "empty slot" : `${part.kind} ${part.label}`;
  const rest = listed(others(part));
  const how = part.together ? "; chosen together with the other edges" : "";
  return `${what} ${part.where ?? ""}${sure}${rest ? `; otherwise ${rest}` : ""}${how}`;
}

function fill(id, parts, cells) {
  const table = at(id);
  table.hidden = !parts.length;
  table.tBodies[0].replaceChildren(...parts.map((part) => {
    const row = document.createElement("tr");
    for (const cell of cells(part)) row.append(make("td", cell ?? "–"));
    row.append(make("td", part.probability === undefined ? "–" : percent(part.probability)));
    row.append(make("td", listed(others(part)) || "–"));
    return row;
  }));
}

function draw(parsed, parts) {
  const box = at("drawing");
  hideCard();
  // Its style sheet is drawing.css: one inside of it is not allowed here.
  const bare = parsed.svg?.replace(/<style>[^]*?<\/style>/, "");
  const picture = bare && new DOMParser().parseFromString(bare, "image/svg+xml").documentElement;
  at("hint").hidden = !picture;
  if (!picture || picture.nodeName !== "svg") {
    const too = parsed.edges.length > 0; // many, or they would have been drawn
    at("stage").classList.remove("more-left", "more-right");
    return box.replaceChildren(make("p", too ? "Too many edges to draw; the tables have them." : "There is nothing to draw."));
  }
  // What its titles and its description say is in the options and in the tables.
  for (const element of picture.querySelectorAll("title, desc")) element.remove();
  picture.setAttribute("role", "none");
  const options = [];
  for (const part of parts) {
    const element = picture.querySelector(`[data-${part.kind}="${part.number}"]`);
    if (!element) continue;
    element.setAttribute("role", "option");
    element.setAttribute("aria-label", inWords(part));
    element.setAttribute("aria-selected", "false");
    element.setAttribute("tabindex", options.length ? "-1" : "0");
    if (part.kind === "edge") {
      const wire = element.querySelector("path:not(.halo, .head)").cloneNode();
      wire.setAttribute("class", "hit");
      element.prepend(wire);
    }
    element.addEventListener("pointerenter", () => look(part, element));
    element.addEventListener("pointerleave", () => document.activeElement !== element && hideCard());
    element.addEventListener("focus", () => look(part, element));
    element.addEventListener("blur", hideCard);
    element.order = options.push(element);
  }
  const tokens = picture.querySelectorAll(".token");
  for (const position of parsed.unknown) tokens[position]?.classList.add("unknown");
  box.replaceChildren(picture);
  box.scrollLeft = 0;
  fade();
}

// The drawing fades at a side beyond which there is more of it.
function fade() {
  const box = at("drawing");
  at("stage").classList.toggle("more-left", box.scrollLeft > 1);
  at("stage").classList.toggle("more-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
}

// Looking at a part

function look(part, element) {
  hideCard();
  element.classList.add("on");
  element.setAttribute("aria-selected", "true");
  for (const end of part.ends ?? []) at("drawing").querySelector(`[data-node="${end}"]`)?.classList.add("near");
  const list = document.createElement("ol");
  for (const choice of part.choices.filter((choice, rank) => rank < 2 || likely(choice))) {
    const row = document.createElement("li");
    const bar = make("span", "", "bar");
    bar.append(document.createElement("i"));
    bar.firstChild.style.width = `${100 * choice.probability}%`;
    row.append(named(choice.label), bar, make("span", percent(choice.probability)));
    list.append(row);
  }
  const title = document.createElement("strong");
  title.append(part.kind === "slot" ? "empty" : part.label);
  const card = at("card");
  card.replaceChildren(title, make("p", part.where), list);
  if (part.together) card.append(make("p", TOGETHER));
  card.hidden = false;
  place(card, (element.querySelector("text") ?? element).getBoundingClientRect());
}

// Below the drawing, or above it where the window ends, so that it hides nothing of it; never beyond the stage's sides.
function place(card, around) {
  const stage = at("stage").getBoundingClientRect();
  const left = around.left + around.width / 2 - card.offsetWidth / 2 - stage.left;
  const above = stage.bottom + card.offsetHeight > window.innerHeight && stage.top > card.offsetHeight;
  card.style.left = `${Math.max(8, Math.min(left, stage.width - card.offsetWidth - 8))}px`;
  card.style.top = `${above ? 12 - card.offsetHeight : stage.height - 12}px`;
}

function hideCard() {
  at("card").hidden = true;
  for (const element of at("drawing").querySelectorAll(".on, .near")) {
    element.classList.remove("on", "near");
    element.setAttribute("aria-selected", "false");
  }
}

function walk(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  const options = [...at("drawing").querySelectorAll("[role=option]")].sort((a, b) => a.order - b.order);
  const here = options.indexOf(document.activeElement);
  if (!step || here < 0) return;
  event.preventDefault();
  const next = options[Math.max(0, Math.min(options.length - 1, here + step))];
  options[here].setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// Copying

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard is for pages of https and of this machine; elsewhere the old way works still.
    const field = make("textarea", text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(`${what} copied.`);
}

function curl(text) {
  const quoted = JSON.stringify({ text }).replaceAll("'", "'\\''");
  return `curl ${new URL(endpoint, document.baseURI).href} -H 'Content-Type: application/json' -d '${quoted}'`;
}

// Starting

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  submit(at("text").value);
});
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit(at("text").value);
});
at("drawing").addEventListener("keydown", walk);
document.addEventListener("keydown", (event) => event.key === "Escape" && hideCard());
at("drawing").addEventListener("scroll", () => {
  hideCard();
  fade();
});
window.addEventListener("resize", fade);
at("copy-form").addEventListener("click", () => copy(at("form").textContent, "The form is"));
at("copy-link").addEventListener("click", () => copy(location.href, "The link is"));
window.addEventListener("popstate", followAddress);
window.addEventListener("hashchange", followAddress);

async function start() {
  try {
    const info = await (await fetch("info")).json();
    at("run").textContent = info.run;
    document.title = `lagr – ${info.run}`;
    if (info.can.includes("ask")) {
      endpoint = "ask";
      at("what").textContent = "A question";
      at("go").textContent = "Ask";
      at("about").textContent = "Ask a question, or choose one, to see its answer and how it was understood.";
    }
    at("text").maxLength = info.limits.characters;
    at("examples").hidden = !info.examples.length;
    at("examples").querySelector("ul").replaceChildren(...info.examples.map((text) => {
      const item = document.createElement("li");
      const button = item.appendChild(make("button", text));
      button.type = "button";
      button.addEventListener("click", () => ask(text));
      return item;
    }));
  } catch {
    say("The service can't be reached.", true);
  }
  followAddress();
}

start();
