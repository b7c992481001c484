// The driver of a JavaScript session: the body of a function (require, load) that Node runs once. It evaluates one cell after
// the other at the top level of one realm, with V8's own REPL mode (the inspector's): declarations last and may be repeated,
// await stands anywhere. It speaks with the runner over descriptor 3, one JSON object a line (drivers/doc.go). Node 18 and
// later, standard modules only.
//
// A thread of its own reads what the runner says, so that an interrupt is heard whatever the user's code does: what waits is
// told to, what runs is terminated, by the inspector.
//
// It is one text: control.js (here: messages, errors), realm.js (values, and what the user's world has), cells.js (what is asked).
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
