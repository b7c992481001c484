// See control.js.

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
