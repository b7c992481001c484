// The driver of a JavaScript session: the body of a function (require, load) that Node runs once. It evaluates one cell after
// the other at the top level of one realm, in the REPL mode of V8's inspector. Declarations survive a cell and may be repeated,
// and await is allowed everywhere. It exchanges JSON objects with the runner over descriptor 3, one per line (drivers/doc.go).
// It needs Node 18 or later, and only Node's own modules.
//
// A separate thread reads the runner's messages, so that an interrupt arrives while user code runs. A cell that waits is
// ended by a message to the main thread. A cell that runs is terminated by the inspector.
//
// The driver is one text of three files: control.js (messages, errors), realm.js (values, the realm), cells.js (cells, stdin).
'use strict';
const fs = require('fs');
const inspector = require('inspector');
const os = require('os');
const path = require('path');
const util = require('util');
const { Worker } = require('worker_threads');
const process = globalThis.process; // user code may delete the global

const control = 3;
const { stringify, parse } = JSON;
const realExit = process.reallyExit.bind(process);
const maxText = 256 << 10;
let maxData = 2 << 20;
let maxDisplays = 200;

// Messages.

const sleeper = new Int32Array(new SharedArrayBuffer(4));

// unsent is the rest of a line whose send was terminated. The next send writes it first.
let unsent = Buffer.alloc(0);

// send writes a whole line before it returns, so that nothing that user code does next can hold it back.
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

// Exit is thrown by process.exit. It ends the cell, not the session.
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
let cell = null; // the cell that runs: {n, name, displays, dropped, exit}

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

// clean removes the driver's frames from the stack of an error and of its causes.
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
    return text.split('\n').filter((line) => !(/^\s+at /.test(line) && ours(line))).join('\n'); // of errors inside value
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
      // User code has broken standard error.
    }
  }
}
