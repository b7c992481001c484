// Package drivers holds the programs that make an interpreter a session: one embedded text per language, run by the
// interpreter itself, nothing but its standard library.
//
// A driver is started with its control channel, a socket, as descriptor 3, and /dev/null, the session's output pipes as 0,
// 1 and 2. Its own text comes first over that socket (see Command), then one JSON object per line in either direction. The
// shell's driver, which cannot read JSON, gets its operations as fields that end in a zero byte (see Encode).
//
//	runner → driver
//	  start      paths, preload, max_data, max_displays; first of all
//	  cell       n, count, code, stdin: run it; stdin names a FIFO that is to be descriptor 0, or is empty
//	  variables  n
//	  path       n, dir: find modules there, too
//	  interrupt  n: end that cell (where Driver.Told)
//	driver → runner
//	  ready      version
//	  begun      n: the code runs from here on, and an interrupt is its own (where Driver.Begins)
//	  heard      n: an interrupt has reached the code (where Driver.Hears)
//	  reading    n: stdin is open, it may come and end
//	  display    n, display {data {mime: base64}, value, truncated}
//	  done       n, code, dropped: the cell has ended; all that it wrote has been flushed before
//	  variables  n, variables [{name, type, preview}]
//	  added      n
//
// n numbers the operations, count the cells: "<cell 3>" is what tracebacks say. One operation at a time, and interrupts. An
// interrupt (Driver.Signal, or the operation) means: end the cell, keep the state. It may come at any moment; one that comes
// when the cell has ended does nothing, least of all to the next cell. User code shares the process, so the runner believes
// nothing it reads: what is forged here misleads nobody but the forger's own session.
//
// # What a session is in each language
//
// Python: cells run in __main__. The last expression's value is shown, unless the cell ends in a semicolon, and is _; the
// display function shows others. Shown are the forms that _repr_html_ and its kin give, and figures of matplotlib that are
// open at the end of a cell. await works at top level on one event loop for the session's life; tasks go on while a later
// cell awaits. A cell that is no coroutine but names create_task finds that loop running, one that calls asyncio.run brings
// its own. sys.exit ends the cell. A fork that comes back from a cell ends there. Builtins that were deleted come back
// after the cell.
//
// JavaScript: cells run as V8's REPL mode runs them: const, let and class last and may be repeated, await works at top
// level, undefined is not shown. require, dynamic import and Node's modules by name work from the work folder; import
// declarations do not. process.exit ends the cell (it throws). An interrupt ends code that runs, also behind an await or in a
// timer, and the waiting for what does not. V8 hands a last value that is a string over as text, which takes its time (10 MB:
// 2 s, 100 MB: 13 s and its size eight times) and does not hear an interrupt: end such a cell in a semicolon and undefined. import()
// in eval and new Function does not work.
//
// Shell: cells run in one bash, at top level. exit ends the cell, and so does what would end the shell (set -e, an error in
// posix mode), after which it executes itself anew with variables, functions, aliases, options and traps, without errexit,
// nounset and xtrace and without its job numbers; without room for its state in TMPDIR or the work folder it ends, and says so.
// That needs the EXIT trap: a shell whose user has set their own is lost where it ends. exec replaces it, and the session is
// lost; one that fails does nothing (execfail). Lines are counted from elsewhere. Without bash a POSIX shell
// serves: what ends that one starts it anew, without its state.
package drivers
