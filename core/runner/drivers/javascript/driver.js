// The driver of a JavaScript session: the body of a function (require, load) that Node runs once. It evaluates one cell after
// the other at the top level of one realm, with V8's own REPL mode (the inspector's): declarations last and may be repeated,
// await stands anywhere. It speaks with the runner over descriptor 3, one JSON object a line (drivers/doc.go). Node 18 and
// later, standard modules only.
//
// A thread of its own reads what the runner says, so that an interrupt is heard whatever the user's code does: what waits is
// told to, what runs is terminated, by the inspector.
'use strict';
const fs = require('fs');
const inspector = require('inspector');
const os = require('os');
const path = require('path');
const util = require('util');
const { Worker } = require('worker_threads');
const process = globalThis.process; // the user may delete theirs

const control = 3;
const { stringify, parse } = JSON;
const realExit = process.reallyExit.bind(process);
const maxText = 256 << 10;
let maxData = 2 << 20;
let maxDisplays = 200;

// Messages.

const sleeper = new Int32Array(new SharedArrayBuffer(4));

// unsent is what a send that was terminated has left of its line to the next.
let unsent = Buffer.alloc(0);

// send writes a line whole and at once: whatever user code does next, it is out.
function send(message) {
  unsent = Buffer.concat([unsent, Buffer.from(stringify(message) + '\n')]);
  while (unsent.length) {
    try {
      unsent = unsent.subarray(fs.writeSync(control, unsent));
    } catch (error) {
      if (error.code === 'EPIPE' || error.code === 'EBADF' || error.code === 'ECONNRESET') realExit(0);
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(sleeper, 0, 0, 1); // the runner is busy
    }
  }
}

// Exit is what process.exit throws: the end of a cell, not of the session.
class Exit {
  constructor(code) {
    this.code = code;
  }
}

// Interruption ends a cell that was interrupted.
class Interruption {
  toString() {
    return 'Error [ERR_SCRIPT_EXECUTION_INTERRUPTED]: Script execution was interrupted by `SIGINT`';
  }
}

let answered = 0; // the last cell that has ended
let cell = null; // the one that runs: {n, name, displays, dropped, exit}

process.exit = function exit(code) {
  const value = code === undefined ? process.exitCode : code;
  const number = Number(value === undefined || value === null ? 0 : value);
  process.exitCode = undefined;
  const signal = new Exit(Number.isInteger(number) ? number & 255 : 1);
  if (cell) cell.exit = signal;
  throw signal;
};

// Errors.

function ours(line) {
  return /<python-executor>|\(?node:(inspector|vm|internal|timers|events|async_hooks|domain)\b|\[eval/.test(line);
}

// clean takes our own frames out of an error and of what it names as its causes.
function clean(error, seen = new Set()) {
  if (!util.types.isNativeError(error) || seen.has(error) || seen.size > 20) return;
  seen.add(error);
  try {
    if (typeof error.stack === 'string') {
      const stack = error.stack.split('\n').filter((line) => !(/^\s+at /.test(line) && ours(line))).join('\n');
      if (stack !== error.stack) error.stack = stack;
    }
    clean(error.cause, seen);
    if (Array.isArray(error.errors)) error.errors.slice(0, 20).forEach((e) => clean(e, seen));
  } catch {
    // A frozen error is shown as it is.
  }
}

function describe(value) {
  try {
    const text = util.inspect(value, { showProxy: true });
    if (!text.includes('<python-executor>')) return text;
    return text.split('\n').filter((line) => !(/^\s+at /.test(line) && ours(line))).join('\n'); // errors deeper within
  } catch (error) {
    return `[${typeof value} whose form cannot be shown: ${error && error.message}]`;
  }
}

function report(prefix, error) {
  clean(error);
  if (util.types.isNativeError(error) && error.name === 'SyntaxError' && cell && cell.place && !/^\s+at /m.test(error.stack)) {
    error.stack += `\n    at ${cell.place}`;
  }
  const text = error instanceof Interruption ? error.toString() : describe(error);
  try {
    process.stderr.write(`${prefix}${text}\n`);
  } catch {
    try {
      fs.writeSync(2, `${prefix}${text}\n`);
    } catch {
      // Its own standard error is the user's to break.
    }
  }
}

// Values.

function bundle(value) {
  const forms = {};
  if (value !== null && typeof value === 'object') {
    try {
      const show = value[Symbol.for('Jupyter.display')];
      const given = typeof show === 'function' ? show.call(value) : undefined;
      for (const [mime, form] of Object.entries(given || {})) {
        if (Buffer.isBuffer(form) || form instanceof Uint8Array) forms[mime] = Buffer.from(form);
        else if (typeof form === 'string' && /^image\/(?!svg)|pdf$/.test(mime)) forms[mime] = Buffer.from(form, 'base64');
        else if (typeof form === 'string') forms[mime] = Buffer.from(form);
        else forms[mime] = Buffer.from(stringify(form));
      }
    } catch {
      // Its text form remains.
    }
  }
  return forms;
}

function show(value, isValue) {
  if (!cell || cell.displays >= maxDisplays) {
    if (cell) cell.dropped++;
    return;
  }
  const forms = bundle(value);
  clean(value);
  let text = forms['text/plain'] || Buffer.from(describe(value));
  delete forms['text/plain'];
  let truncated = false;
  if (text.length > maxText) {
    text = Buffer.from(text.subarray(0, maxText).toString() + '…');
    truncated = true;
  }
  const data = {};
  let room = maxData;
  for (const [mime, form] of [['text/plain', text], ...Object.entries(forms)]) {
    if (form.length > room) {
      truncated = true;
      continue;
    }
    room -= form.length;
    data[mime] = form.toString('base64');
  }
  cell.displays++;
  send({ op: 'display', n: cell.n, display: { data, value: isValue, truncated } });
}

// The realm.

const session = new inspector.Session();
session.connect();

function post(method, params) {
  let answer;
  session.post(method, params, (error, result) => {
    answer = error ? { error } : result;
  });
  return answer || {};
}

const holder = { value: undefined };
Object.defineProperty(globalThis, '__pyexec_holder', { value: holder, enumerable: false, configurable: true });
const holderID = post('Runtime.evaluate', { expression: '__pyexec_holder' }).result.objectId;
delete globalThis.__pyexec_holder;

// real is the value that a remote object stands for.
function real(remote) {
  if (remote.objectId) {
    post('Runtime.callFunctionOn', {
      objectId: holderID, functionDeclaration: 'function (value) { this.value = value }', arguments: [{ objectId: remote.objectId }],
    });
    const value = holder.value;
    holder.value = undefined;
    return value;
  }
  if (remote.unserializableValue !== undefined) {
    const text = remote.unserializableValue;
    return text.endsWith('n') && remote.type === 'bigint' ? BigInt(text.slice(0, -1)) : text === '-0' ? -0 : Number(text);
  }
  return remote.type === 'undefined' ? undefined : remote.value;
}

// importsRenamed gives import() in code a name that works in the inspector's scripts, which may not import. It knows
// strings, templates, comments and regular expressions; import declarations and import.meta stay what they are: errors.
function importsRenamed(code, name) {
  if (!/\bimport\s*\(/.test(code)) return code;
  const token = /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"|[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*|\d[\w.]*|\s+|[^]/y;
  const pattern = /\/(?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
  const before = /^(?:return|typeof|case|in|of|delete|void|throw|new|do|else|instanceof|yield|await)$/;
  let out = '';
  let last = ''; // the last token that counts
  const open = []; // depths of braces at which a template goes on
  const calls = []; // where in out a name may be a method's after all, and the depth of its parentheses
  let depth = 0;
  let round = 0;
  let at = 0;
  const template = () => {
    while (at < code.length) {
      const c = code[at];
      if (c === '\\') {
        out += code.slice(at, at + 2);
        at += 2;
      } else if (c === '`') {
        out += c;
        at++;
        last = '`';
        return;
      } else if (c === '$' && code[at + 1] === '{') {
        out += '${';
        at += 2;
        open.push(depth);
        last = '{';
        return;
      } else {
        out += c;
        at++;
      }
    }
  };
  while (at < code.length) {
    if (code[at] === '`') {
      out += '`';
      at++;
      template();
      continue;
    }
    if (code[at] === '}' && open.length && open[open.length - 1] === depth) {
      open.pop();
      out += '}';
      at++;
      template();
      continue;
    }
    token.lastIndex = at;
    let text = token.exec(code)[0];
    if (text === '/' && (last === '' || before.test(last) || !/[\w$\])}'"`/]$/.test(last))) {
      pattern.lastIndex = at;
      const found = pattern.exec(code);
      if (found) text = found[0];
    }
    at += text.length;
    if (text === '{') depth++;
    if (text === '}') depth--;
    if (text === '(') round++;
    if (text === ')') round--;
    if (text === ')' && calls.length && calls[calls.length - 1].round === round) {
      const start = calls.pop().start;
      if (/^[^\S\n]*\{/.test(code.slice(at, at + 200))) out = out.slice(0, start) + 'import' + out.slice(start + name.length);
    }
    if (text === 'import' && last !== '.' && /^\s*\(/.test(code.slice(at, at + 200))) {
      calls.push({ start: out.length, round });
      out += name;
    } else out += text;
    if (!/^\s|^\/[/*]/.test(text)) last = text;
  }
  return out;
}

// imported resolves what a cell names as a module in the work folder would: relative to where we are.
function imported(specifier, options) {
  const text = String(specifier);
  const place = /^\.{0,2}\//.test(text) ? require('url').pathToFileURL(path.resolve(text)).href : text;
  return load(place, options);
}

Object.defineProperty(globalThis, '__pyexec_import', { value: imported, enumerable: false });
Object.defineProperty(globalThis, 'display', {
  value: (...values) => values.forEach((value) => show(value, false)), enumerable: false, writable: true, configurable: true,
});

// Cells.

// How the cell that runs is to end. Whoever changes going decides it: a cell that has ended is not terminated any more, and
// one that is being terminated has not ended before that is over.
const going = 0;
const ended = 1;
const terminating = 2;
const ending = new Int32Array(new SharedArrayBuffer(4));

const newCell = (message) => ({ n: message.n, name: `cell-${message.count}`, displays: 0, dropped: 0, exit: null, place: '' });

function runCell(message) {
  const mine = (cell = newCell(message));
  connectInput(message.stdin);
  const request = {
    expression: `${importsRenamed(message.code || '', '__pyexec_import')}\n//# sourceURL=${mine.name}`,
    replMode: true, objectGroup: 'cell', userGesture: false,
  };
  session.post('Runtime.evaluate', request, (error, result) => {
    if (cell !== mine) return; // it was interrupted
    try {
      evaluated(mine, message.code, error, result);
    } catch (broken) {
      finish(mine, 1, broken); // what we need was changed under our feet
    }
  });
}

function evaluated(mine, code, error, result) {
  if (error) return finish(mine, 1, error);
  if (result.exceptionDetails) {
    const details = result.exceptionDetails;
    const lines = code.split('\n');
    const line = Math.min(details.lineNumber, lines.length - 1); // ours is behind the user's
    const column = line < details.lineNumber ? lines[line].length : details.columnNumber;
    mine.place = `${mine.name}:${line + 1}:${column + 1}`;
    return failed(mine, details.exception ? real(details.exception) : new Error(details.text));
  }
  const value = real(result.result);
  if (value !== undefined) {
    try {
      globalThis._ = value;
    } catch {
      // The user has a _ of their own.
    }
    show(value, true);
  }
  setImmediate(() => finish(mine, 0)); // behind what Node says of rejections that nobody handles
}

function failed(mine, error) {
  if (error instanceof Exit) return finish(mine, error.code);
  if (error instanceof Interruption) return finish(mine, 130, error);
  finish(mine, 1, error, true);
}

function finish(mine, code, error, thrown) {
  if (cell !== mine || Atomics.compareExchange(ending, 0, going, ended) === terminating) return;
  if (error !== undefined || thrown) report('Uncaught ', error);
  cell = null;
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  if (inputIsOpen) connectInput('');
  answered = mine.n;
  send({ op: 'done', n: mine.n, code, dropped: mine.dropped });
}

// interrupted ends the cell n: it waits; what it waits for goes on, and is nobody's.
function interrupted(n) {
  if (cell && cell.n === n) failed(cell, new Interruption());
}

process.on('SIGINT', () => {
  if (cell) interrupted(cell.n); // the user's own doing
});
// stray takes what was thrown where nobody catches: the end of a cell, or what the user's own listeners see to, if there are any.
const stray = (event, prefix) => process.on(event, (error) => {
  if (error instanceof Exit) {
    if (cell && cell.exit === error) finish(cell, error.code);
    return;
  }
  if (process.listenerCount(event) < 2) report(prefix, error);
});
stray('uncaughtException', 'Uncaught ');
stray('unhandledRejection', 'Uncaught (in promise) ');

// Standard input.

let inputIsOpen = false;
let input;

function connectInput(name) {
  if (!name && !inputIsOpen) return;
  input = undefined;
  try {
    fs.closeSync(0);
  } catch {
    // The user has done so.
  }
  let fd = -1;
  try {
    fd = fs.openSync(name || os.devNull, 'r');
    if (name) fs.unlinkSync(name);
  } catch {
    if (fd < 0) fd = fs.openSync(os.devNull, 'r');
  }
  inputIsOpen = !!name;
  if (name) send({ op: 'reading', n: cell.n });
}

Object.defineProperty(process, 'stdin', {
  configurable: true,
  enumerable: true,
  get() {
    if (!input) input = fs.createReadStream(null, { fd: 0, autoClose: false });
    return input;
  },
});

// What is asked between cells.

const initial = new Set(Object.getOwnPropertyNames(globalThis));
const quiet = { depth: 1, maxArrayLength: 10, maxStringLength: 200, breakLength: Infinity, compact: true, getters: false };

function variables(message) {
  const names = new Set(Object.getOwnPropertyNames(globalThis).filter((name) => !initial.has(name) && name !== '_'));
  for (const name of post('Runtime.globalLexicalScopeNames', {}).names || []) names.add(name);
  const list = [];
  for (const name of [...names].sort()) {
    if (list.length === 1000 || name.startsWith('__pyexec')) continue;
    const got = post('Runtime.evaluate', { expression: name, objectGroup: 'cell', throwOnSideEffect: true });
    if (!got.result || got.exceptionDetails) continue; // declared and never given a value, or a getter
    const value = real(got.result);
    let type = value === null ? 'null' : typeof value;
    let preview = '';
    try {
      if (type === 'object') type = value.constructor?.name || 'Object';
      preview = util.inspect(value, quiet).replace(/\s+/g, ' ');
    } catch {
      preview = '<its form cannot be shown>';
    }
    list.push({ name, type: String(type), preview: [...preview.slice(0, 400)].slice(0, 200).join('') });
  }
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  send({ op: 'variables', n: message.n, variables: list });
}

function take(message) {
  switch (message.op) {
    case 'start':
      maxData = message.max_data || maxData;
      maxDisplays = message.max_displays || maxDisplays;
      send({ op: 'ready', version: process.versions.node });
      break;
    case 'cell':
      runCell(message);
      break;
    case 'variables':
      variables(message);
      break;
    case 'interrupt':
      interrupted(message.n);
      break;
    case 'terminated':
      Atomics.store(ending, 0, going);
      if (!cell && answered < message.n) cell = newCell(message); // what would have begun it was terminated
      interrupted(message.n);
      break;
  }
}

// listen is the body of the thread that reads what the runner says.
function listen() {
  const { parentPort, workerData: ending } = require('worker_threads');
  const net = require('net');
  const [going, terminating] = [0, 2];
  const patience = 20; // milliseconds in which what waits takes an interrupt
  let current; // the cell that was passed on last
  let debug;

  // terminate ends what runs. The answer comes when all of it has left the stack: of the first JavaScript there is, if
  // nothing ran. That may be the user's, or our poke.
  const terminate = (n) => {
    if (!debug) {
      const inspector = require('inspector');
      debug = new inspector.Session();
      debug.connectToMainThread();
    }
    debug.post('Runtime.terminateExecution', () => parentPort.postMessage({ op: 'terminated', n }));
    parentPort.postMessage({ op: 'poke' });
  };
  const take = (message) => {
    if (message.op === 'cell') {
      current = message.n;
      Atomics.store(ending, 0, going); // the one before has been answered
    }
    parentPort.postMessage(message);
    if (message.op !== 'interrupt') return;
    setTimeout(() => {
      if (current === message.n && Atomics.compareExchange(ending, 0, going, terminating) === going) terminate(message.n);
    }, patience);
  };
  let rest = [];
  const channel = new net.Socket({ fd: 3, readable: true, writable: false });
  channel.on('data', (data) => {
    for (let at; (at = data.indexOf(10)) >= 0; data = data.subarray(at + 1)) {
      rest.push(data.subarray(0, at));
      const line = Buffer.concat(rest).toString();
      rest = [];
      take(JSON.parse(line));
    }
    if (data.length) rest.push(data);
  });
  const leave = () => process.kill(process.pid, 'SIGKILL'); // the runner is gone
  channel.on('end', leave);
  channel.on('error', leave);
}

new Worker(`(${listen})()`, {
  eval: true, workerData: ending, execArgv: [], name: 'python-executor',
  // What a thread takes of an address space by default is more than a limit of it (RLIMIT_AS) may leave.
  resourceLimits: { codeRangeSizeMb: 4, maxYoungGenerationSizeMb: 8, maxOldGenerationSizeMb: 256, stackSizeMb: 1 },
}).on('message', take);
