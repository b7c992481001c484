// See control.js.

// Cells.

// ending says how the cell that runs ends. The first change from going decides: an ended cell is not terminated, and a cell
// that is being terminated ends with the termination. The termination may have met JavaScript that ran before the cell. So the
// thread that listens terminates again while the main thread does not take its message.
const going = 0;
const ended = 1;
const terminating = 2; // V8 may terminate what runs
const terminated = 3; // it has done so
const ending = new Int32Array(new SharedArrayBuffer(4));

// consoleMark is the beginning of executor.ConsoleCell, incompleteType is executor.IncompleteType.
const consoleMark = '// python-executor: console\n';
const incompleteType = 'application/vnd.python-executor.incomplete+json';

const newCell = (message) => ({ n: message.n, name: `cell-${message.count}`, displays: 0, dropped: 0, exit: null, place: '' });

function runCell(message) {
  const mine = (cell = newCell(message));
  connectInput(message.stdin);
  let code = message.code || '';
  const typed = code.startsWith(consoleMark);
  let parsed = false; // V8 answers at once when it cannot parse, else later
  if (typed) code = code.slice(consoleMark.length);
  session.post('Runtime.evaluate', evaluation(mine, code), (error, result) => {
    if (cell !== mine) return; // the cell was interrupted
    try {
      if (typed && !parsed && result?.exceptionDetails && incomplete(mine, code, result.exceptionDetails)) {
        send({ op: 'display', n: mine.n, display: { data: { [incompleteType]: 'e30=' }, value: false, truncated: false } });
        finish(mine, 0);
        return;
      }
      evaluated(mine, code, error, result);
    } catch (broken) {
      finish(mine, 1, broken); // user code has changed something that the driver needs
    }
  });
  parsed = true;
}

const evaluation = (cell, code) => ({
  expression: `${importsRenamed(code, '__pyexec_import')}\n//# sourceURL=${cell.name}`,
  replMode: true, objectGroup: 'cell', userGesture: false,
});

// closers maps V8's messages about code that is open at its end to the texts that could close it.
const closers = {
  'SyntaxError: Unexpected end of input': [],
  'SyntaxError: missing ) after argument list': [')'],
  'SyntaxError: Missing } in template expression': ['}'],
  'SyntaxError: Invalid or unexpected token': ['*/', "\n'", '\n"'], // a comment, or a backslash at the end of a string
};

// incomplete reports whether another line could complete code that V8 could not parse: the code ends too early, or the place
// of the error changes when the code is closed. The code of an attempt ends in a backslash, so it never runs.
function incomplete(cell, code, details) {
  const message = (d) => String(d.exception?.description).split('\n')[0];
  const place = (d) => `${message(d)} ${d.lineNumber}:${d.columnNumber}`;
  const ends = closers[message(details)];
  if (!ends?.length) return !!ends;
  return ends.some((end) => {
    const tried = post('Runtime.evaluate', evaluation(cell, `${code}${end}\n\\`));
    return tried.exceptionDetails && place(tried.exceptionDetails) !== place(details);
  });
}

function evaluated(mine, code, error, result) {
  if (error) return finish(mine, 1, error);
  if (result.exceptionDetails) {
    const details = result.exceptionDetails;
    const lines = code.split('\n');
    const line = Math.min(details.lineNumber, lines.length - 1); // the driver's line follows the user's
    const column = line < details.lineNumber ? lines[line].length : details.columnNumber;
    mine.place = `${mine.name}:${line + 1}:${column + 1}`;
    return failed(mine, details.exception ? real(details.exception) : new Error(details.text));
  }
  const value = real(result.result);
  if (value !== undefined) {
    try {
      globalThis._ = value;
    } catch {
      // User code has declared a _ itself.
    }
    show(value, true);
  }
  setImmediate(() => finish(mine, 0)); // after Node has reported unhandled rejections
}

function failed(mine, error) {
  if (error instanceof Exit) return finish(mine, error.code);
  if (error instanceof Interruption) return finish(mine, 130, error);
  finish(mine, 1, error, true);
}

function finish(mine, code, error, thrown) {
  if (cell !== mine || Atomics.compareExchange(ending, 0, going, ended) >= terminating) return;
  if (error !== undefined || thrown) report('Uncaught ', error);
  cell = null;
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  if (inputIsOpen) connectInput('');
  answered = mine.n;
  send({ op: 'done', n: mine.n, code, dropped: mine.dropped });
}

// interrupted ends cell n, which waits. The operation that it waits for continues without a cell.
function interrupted(n) {
  if (cell && cell.n === n) failed(cell, new Interruption());
}

process.on('SIGINT', () => {
  if (cell) interrupted(cell.n); // sent by user code
});
// onUncaught handles a value that nobody caught: the Exit of a cell, or an error, which is reported unless user code listens.
const onUncaught = (event, prefix) => process.on(event, (error) => {
  if (error instanceof Exit) {
    if (cell && cell.exit === error) finish(cell, error.code);
    return;
  }
  if (process.listenerCount(event) < 2) report(prefix, error);
});
onUncaught('uncaughtException', 'Uncaught ');
onUncaught('unhandledRejection', 'Uncaught (in promise) ');

// Standard input.

let inputIsOpen = false;
let input;

function connectInput(name) {
  if (!name && !inputIsOpen) return;
  input = undefined;
  try {
    fs.closeSync(0);
  } catch {
    // User code has closed it.
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

// Requests between cells.

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
      if (Atomics.compareExchange(ending, 0, terminated, going) !== terminated) break; // the next message ends the cell
      if (!cell && answered < message.n) cell = newCell(message); // its runCell was terminated
      interrupted(message.n);
      break;
  }
}

// listen is the body of the thread that reads the runner's messages.
function listen() {
  const { parentPort, workerData: ending } = require('worker_threads');
  const net = require('net');
  const [going, terminating, terminated] = [0, 2, 3];
  // In milliseconds: a waiting cell takes an interrupt within patience, and the main thread a message within retry.
  const [patience, retry] = [20, 500];
  let current; // the number of the last cell that was passed on
  let debug;

  // terminate ends the JavaScript that runs. The answer comes when all of it has left the stack. If none runs, the next
  // JavaScript is terminated: that of the user, or the poke.
  const terminate = (n, from, pause) => {
    if (current !== n || Atomics.compareExchange(ending, 0, from, terminating) !== from) return;
    if (!debug) {
      const inspector = require('inspector');
      debug = new inspector.Session();
      debug.connectToMainThread();
    }
    debug.post('Runtime.terminateExecution', () => {
      Atomics.store(ending, 0, terminated);
      parentPort.postMessage({ op: 'terminated', n });
      setTimeout(terminate, pause, n, terminated, 2 * pause);
    });
    parentPort.postMessage({ op: 'poke' });
  };
  const take = (message) => {
    if (message.op === 'cell') {
      current = message.n;
      Atomics.store(ending, 0, going); // the cell before has been answered
    }
    parentPort.postMessage(message);
    if (message.op !== 'interrupt') return;
    setTimeout(terminate, patience, message.n, going, retry);
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
  // By default a thread takes more address space than a limit (RLIMIT_AS) may leave.
  resourceLimits: { codeRangeSizeMb: 4, maxYoungGenerationSizeMb: 8, maxOldGenerationSizeMb: 256, stackSizeMb: 1 },
}).on('message', take);
