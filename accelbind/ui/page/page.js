// The page of `accelbind ui`. Everything that a cluster says is foreign text: it becomes text nodes
// only, never markup.
"use strict";

const $ = (id) => document.getElementById(id);
const WORDS = { healthy: "healthy", unhealthy: "unhealthy", silent: "no answer", empty: "no devices" };

// The token is in the fragment, which browsers send to nobody; a reload finds it in the session.
function adopt() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return false;
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", "#fleet");
  return true;
}
adopt();
const headers = { Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` };

let shown = null; // the last reading
let namespace = "default";

const UNKNOWN = "unknown";

// Elements -----------------------------------------------------------------------------------------

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function cell(value, className) {
  const made = element("td");
  if (className) made.className = className;
  if (value instanceof Node) made.append(value);
  else made.textContent = value === "" || value === null || value === undefined ? "–" : String(value);
  return made;
}

function fill(table, rows, nothing) {
  const body = $(table).tBodies[0];
  if (!rows.length) {
    const empty = cell(nothing, "nothing");
    empty.colSpan = $(table).tHead.rows[0].cells.length;
    rows = [[empty]];
  }
  update(body, rows.map((cells) => {
    const row = element("tr");
    row.append(...cells);
    return row;
  }));
}

// Elements that are as before stay, with the focus and the selection in them.
function update(parent, parts) {
  parts.forEach((part, at) => {
    const old = parent.children[at];
    if (!old) parent.append(part);
    else if (old.isEqualNode(part)) return;
    else if (old.tagName === "UL" && part.tagName === "UL") update(old, [...part.children]);
    else old.replaceWith(part);
  });
  while (parent.children.length > parts.length) parent.lastElementChild.remove();
}

function say(id, text) {
  const shownText = text || "";
  $(id).hidden = !shownText;
  // The same text again would be read aloud again.
  if ($(id).textContent !== shownText) $(id).textContent = shownText;
}

function link(to, text) {
  return element("a", text, { href: to });
}

const nodeLink = (name) => (name ? link(`#node/${encodeURIComponent(name)}`, name) : "");

// Views --------------------------------------------------------------------------------------------

function place() {
  const [view, ...rest] = location.hash.slice(1).split("/");
  return { view: $(`view-${view}`) ? view : "fleet", name: decoded(rest.join("/")) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

function show() {
  const { view, name } = place();
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = section.id !== `view-${view}`;
  }
  for (const each of document.querySelectorAll("nav a")) {
    if (each.hash === `#${view === "node" ? "fleet" : view}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  document.title = `${view === "node" ? name : view} – accelbind`;
  if (view === "fleet") showFleet();
  if (view === "node") showNode(name);
  if (view === "names") showNames();
  if (view === "pods") showPods();
}

function showFleet() {
  if (!shown) return;
  fill("resources", shown.resources.map((each) => [
    cell(each.name || "not offered"),
    ...["all", "free", "used"].map((key) => cell(each[key] ?? UNKNOWN, "number")),
    cell(each.unhealthy, each.unhealthy ? "number bad" : "number"),
  ]), "no devices");
  const wanted = $("filter").value.trim().toLowerCase();
  const pools = new Map();
  const byNumber = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const each of [...shown.tiles].sort((a, b) => byNumber(a.name, b.name))) {
    if (wanted && !each.name.toLowerCase().includes(wanted)) continue;
    if ($("only-bad").checked && (each.state === "healthy" || each.state === "empty")) continue;
    if (!pools.has(each.pool)) pools.set(each.pool, []);
    pools.get(each.pool).push(tile(each));
  }
  const parts = [];
  for (const [pool, items] of [...pools].sort(([a], [b]) => (a < b ? -1 : 1))) {
    parts.push(element("h4", `${pool || "without a pool"} (${items.length})`));
    const list = element("ul", null, { class: "tiles" });
    list.append(...items);
    parts.push(list);
  }
  if (!parts.length) parts.push(element("p", "no node", { class: "nothing" }));
  update($("pools"), parts);
}

function tile(node) {
  const anchor = link(`#node/${encodeURIComponent(node.name)}`);
  anchor.className = node.state;
  anchor.title = node.note;
  const word = element("span", WORDS[node.state], { class: "word" });
  const numbers = node.all ? [`${node.free ?? UNKNOWN} of ${node.all} free`] : [];
  anchor.append(element("b", node.name), word, element("small", [...numbers, node.mode].filter(Boolean).join(", ")));
  const item = element("li");
  item.append(anchor);
  return item;
}

async function showNode(name) {
  $("title-node").textContent = `Node ${name}`;
  const answer = await ask(`/api/node?name=${encodeURIComponent(name)}`);
  if (place().name !== name) return;
  const node = answer.node ?? { devices: [], problems: [], counted: {} };
  const facts = [node.pool, node.mode && `mode ${node.mode}`, node.processVersion, node.pod, node.source === "slices" && "as its ResourceSlices say"];
  $("node-facts").textContent = facts.filter(Boolean).join(" · ");
  const problems = [node.error, ...node.problems, answer.node ? "" : answer.error].filter(Boolean);
  update($("node-problems"), problems.map((each) => element("li", each)));
  fill("devices", node.devices.map((each) => [
    cell(each.device),
    cell(each.health, each.health === "Healthy" ? "good" : "bad"),
    cell(each.resource), cell(each.type || "FPGA"), cell(each.card),
    cell(each.holders.map(holder).join(", ")),
    cell(each.reasons.map((why) => `${why.message} [${why.reason}]`).join("; ")),
  ]), "no devices");
  say("events-error", answer.node && answer.error);
  fill("events", (answer.events ?? []).map((each) => [
    cell(each.at), cell(each.type), cell(each.reason), cell(each.message),
  ]), "no Events");
}

function holder(each) {
  const what = each.claim ? `claim ${each.namespace}/${each.claim}` : `${each.namespace}/${each.pod}`;
  return each.container ? `${what} (${each.container})` : what;
}

async function showNames() {
  const asked = namespace;
  const answer = await ask(`/api/names?namespace=${encodeURIComponent(asked)}`);
  if (asked !== namespace) return;
  const missing = (answer.missing ?? []).join(", ");
  say("names-error", answer.error ?? (missing && `unknown, since you may not list ${missing}`));
  fill("names", (answer.names ?? []).map((each) => [
    cell(each.name), cell(each.becomes || "can't be used"), cell(nodes(each)), cell(free(each)),
    cell(each.shared ? `${each.namespace} (shared)` : each.namespace), cell(each.note),
  ]), "no names");
}

function nodes(name) {
  if (!name.usable) return "";
  if (!name.nodes) return UNKNOWN;
  const shownNames = name.nodes.slice(0, 3).join(", ");
  return name.nodes.length > 3 ? `${shownNames} and ${name.nodes.length - 3} more` : shownNames || "no node";
}

function free(name) {
  if (!name.usable) return "";
  if (name.free === null) return UNKNOWN;
  return name.freeIsBound ? `at most ${name.free}` : name.free;
}

function showPods() {
  if (!shown) return;
  const waiting = shown.pods.filter((each) => each.phase === "Pending");
  const running = shown.pods.filter((each) => each.phase !== "Pending");
  fill("waiting", waiting.map((each) => {
    const why = element("div");
    for (const one of each.why) why.append(element("div", one.what), element("small", one.todo));
    if (!each.why.length) why.append(element("div", each.node ? "it starts" : "no reason is known yet"));
    return [cell(`${each.namespace}/${each.name}`), cell(each.asks), cell(nodeLink(each.node)), cell(why)];
  }), "no pod waits");
  fill("running", running.map((each) => [
    cell(`${each.namespace}/${each.name}`), cell(each.asks), cell(nodeLink(each.node)),
  ]), "no pod runs");
}

// The server ---------------------------------------------------------------------------------------

async function ask(path, body) {
  try {
    const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
    const answer = await fetch(path, { ...options, headers });
    if (answer.status === 401) return { error: "the token is missing: open the printed address again" };
    if (answer.headers.get("Content-Type") !== "application/json") {
      return { error: `accelbind ui answers ${answer.status}: ${await answer.text()}` };
    }
    return await answer.json();
  } catch {
    return { error: "accelbind ui does not answer: was it ended?" };
  }
}

function take(text) {
  const { reading, error } = JSON.parse(text);
  say("error", error && `Nothing newer can be read: ${error}`);
  if (!reading) return;
  shown = reading;
  const at = new Date(reading.at).toLocaleTimeString();
  $("status").textContent = `Read at ${at}, in ${reading.seconds} s`;
  $("problems").hidden = !reading.problems.length;
  $("problems").querySelector("summary").textContent = `${reading.problems.length} could not be read`;
  update($("problems").querySelector("ul"), reading.problems.map((each) => element("li", each)));
  const focused = document.activeElement;
  show();
  if (!focused.isConnected) { // a link whose row or tile has changed
    const again = [...document.links].find((each) => each.hash === focused.hash && each.offsetParent);
    again?.focus({ preventScroll: true });
  }
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("/api/stream", { headers });
      if (!answer.ok) {
        say("error", "This address has no valid token: open the address that accelbind ui printed.");
        return;
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) if (part.startsWith("data: ")) take(part.slice(6));
      }
    } catch { /* told below, and tried again */ }
    say("error", "accelbind ui does not answer: was it ended? It is tried again.");
    await new Promise((resolve) => { setTimeout(resolve, 2000); });
  }
}

addEventListener("hashchange", () => {
  if (adopt()) { // the address of another start, opened in this page
    location.reload();
    return;
  }
  show();
  $("content").focus({ preventScroll: true });
});
$("filter").addEventListener("input", showFleet);
$("only-bad").addEventListener("change", showFleet);
$("choose").addEventListener("submit", (event) => {
  event.preventDefault();
  namespace = $("namespace").value.trim();
  showNames();
});
$("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await ask("/api/explain", { namespace: $("namespace").value.trim(), text: $("request").value });
  const [title, list, pod] = $("answer").children;
  $("answer").hidden = false;
  title.textContent = answer.error ?? (answer.refused ? "refused" : "admitted");
  title.className = answer.error || answer.refused ? "error" : "";
  list.replaceChildren(...(answer.lines ?? []).map((each) => element("li", each)));
  pod.textContent = answer.pod ?? "";
  pod.hidden = !answer.pod;
});
show();
follow();
