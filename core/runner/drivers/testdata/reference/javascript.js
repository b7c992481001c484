// Runs cells as Node's own REPL does. After each cell a mark goes to both streams.
'use strict';
const fs = require('fs');
const repl = require('repl');
const { PassThrough } = require('stream');
const util = require('util');

const cells = JSON.parse(fs.readFileSync(process.argv[2]));
const server = repl.start({ input: new PassThrough(), output: new PassThrough(), prompt: '', terminal: false, useGlobal: true });

function failed(error) {
  const shown = util.inspect((error && error.err) || error).split('\n');
  fs.writeSync(2, `Uncaught ${(shown.find((line) => /^\[?\w*Error/.test(line)) || shown[0]).replace(/^\[(.*)\]$/, '$1')}\n`);
}

async function main() {
  for (const cell of cells) {
    fs.writeFileSync('.stdin', cell.stdin);
    try {
      fs.closeSync(0);
    } catch (error) {
      if (error.code !== 'EBADF') throw error; // a stream of the cell before has closed it at its end
    }
    fs.openSync('.stdin');
    fs.unlinkSync('.stdin');
    await new Promise((done) => {
      server._domain.removeAllListeners('error');
      server._domain.on('error', (error) => {
        failed(error);
        setImmediate(done);
      });
      server.eval(cell.code, server.context, 'repl', (error, value) => {
        if (error) {
          failed(error);
        } else if (value !== undefined) {
          server.context._ = value;
          fs.writeSync(1, `${util.inspect(value, { showProxy: true })}\n`);
        }
        setImmediate(done);
      });
    });
    fs.writeSync(1, '\x1e');
    fs.writeSync(2, '\x1e');
  }
  process.exit(0);
}
process.on('uncaughtException', (error) => fs.writeSync(2, `Uncaught ${util.inspect(error)}\n`));
main();
