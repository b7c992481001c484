// A small MCP client: initialize, list the tools, call one with JSON, see progress and result.
"use strict";
const $ = (id) => document.getElementById(id);
const state = { id: 0, session: "", version: "", tools: [], abort: null };

function headers() {
  const h = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
  if ($("token").value) h.Authorization = "Bearer " + $("token").value;
  if (state.session) h["Mcp-Session-Id"] = state.session;
  if (state.version) h["Mcp-Protocol-Version"] = state.version;
  return h;
}

// send posts one message and returns its answer; onNotification sees what comes before it.
async function send(message, onNotification, signal) {
  const response = await fetch($("endpoint").value, { method: "POST", headers: headers(), body: JSON.stringify(message), signal });
  const session = response.headers.get("Mcp-Session-Id");
  if (session) state.session = session;
  if (response.status === 202) return null;
  const type = response.headers.get("Content-Type") || "";
  if (!type.startsWith("text/event-stream")) {
    const body = await response.text();
    let json;
    try { json = JSON.parse(body); } catch { throw new Error(response.status + " " + body.slice(0, 500)); }
    if (!response.ok && !json.error) throw new Error(response.status + " " + (json.detail || json.title || body));
    return json;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the stream ended without an answer");
    rest += value;
    const events = rest.split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
      if (!data) continue;
      const json = JSON.parse(data);
      if (json.id === message.id && json.method === undefined) return json;
      if (onNotification) onNotification(json);
    }
  }
}

async function request(method, params, onNotification, signal) {
  const answer = await send({ jsonrpc: "2.0", id: ++state.id, method, params }, onNotification, signal);
  if (answer.error) throw new Error(answer.error.message + " (" + answer.error.code + ")");
  return answer.result;
}

function show(error, text) {
  $("result").className = error ? "error" : "";
  $("result").textContent = text;
}

$("connect").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    state.session = state.version = "";
    const result = await request("initialize", {
      protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "mcp_ui", version: "1" },
    });
    state.version = result.protocolVersion;
    await send({ jsonrpc: "2.0", method: "notifications/initialized" });
    $("server").textContent = result.serverInfo.name + " " + result.serverInfo.version + ", protocol " + result.protocolVersion;
    state.tools = (await request("tools/list", {})).tools;
    $("tool").replaceChildren(...state.tools.map((t) => new Option(t.name)));
    $("call").hidden = false;
    pick();
    show(false, "");
  } catch (error) {
    show(true, String(error.message || error));
  }
});

// pick shows what the chosen tool is, and a first draft of its arguments.
function pick() {
  const tool = state.tools.find((t) => t.name === $("tool").value);
  if (!tool) return;
  $("about").textContent = tool.description || "";
  const draft = {};
  for (const name of tool.inputSchema.required || []) {
    const type = ((tool.inputSchema.properties || {})[name] || {}).type;
    draft[name] = type === "array" ? [] : type === "object" ? {} : type === "boolean" ? false : type === "integer" || type === "number" ? 0 : "";
  }
  $("arguments").value = JSON.stringify(draft, null, 2);
}
$("tool").addEventListener("change", pick);

$("call").addEventListener("submit", async (event) => {
  event.preventDefault();
  let args;
  try { args = JSON.parse($("arguments").value || "{}"); } catch (error) { return show(true, "arguments: " + error.message); }
  $("progress").replaceChildren();
  $("images").replaceChildren();
  show(false, "running …");
  state.abort = new AbortController();
  $("stop").disabled = false;
  try {
    const result = await request("tools/call", { name: $("tool").value, arguments: args, _meta: { progressToken: "ui-" + (state.id + 1) } }, (note) => {
      if (note.method !== "notifications/progress") return;
      const item = document.createElement("li");
      item.textContent = note.params.message || note.params.progress;
      $("progress").append(item);
    }, state.abort.signal);
    for (const content of result.content || []) {
      if (content.type !== "image" || !/^image\/(png|jpeg|gif|webp)$/.test(content.mimeType)) continue;
      const image = new Image();
      image.src = "data:" + content.mimeType + ";base64," + content.data;
      $("images").append(image);
      content.data = "(" + content.data.length + " characters)";
    }
    show(result.isError, JSON.stringify(result, null, 2));
  } catch (error) {
    show(true, String(error.message || error));
  } finally {
    $("stop").disabled = true;
  }
});

$("stop").addEventListener("click", () => state.abort && state.abort.abort());
