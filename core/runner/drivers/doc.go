// Package drivers holds the programs that turn an interpreter into a session: one embedded text per language, which the interpreter
// itself runs with nothing but its standard library.
//
// A driver is started with its control channel, a socket, as descriptor 3. Descriptors 0, 1 and 2 are /dev/null and the output
// pipes of the session. The text of the driver comes first over the socket (see Command), then one JSON object per line in either
// direction. The driver of the shell cannot read JSON. It gets operations as fields that end in a zero byte (see Encode).
//
//	runner → driver
//	  start      paths, preload, max_data, max_displays; the first operation
//	  cell       n, count, code, stdin: run the code; stdin names a FIFO to open as descriptor 0, or is empty
//	  variables  n
//	  path       n, dir: also find modules there
//	  interrupt  n: end that cell (with Driver.Told)
//	driver → runner
//	  ready      version
//	  begun      n: the code runs from here on, and gets the interrupts (with Driver.Begins)
//	  heard      n: an interrupt has reached the code (with Driver.Hears)
//	  lost       n: the interpreter has dropped an interrupt that was heard, as Python does in a finalizer
//	  reading    n: stdin is open
//	  display    n, display {data {mime: base64}, value, truncated}
//	  done       n, code, dropped: the cell has ended, and its output was flushed before
//	  variables  n, variables [{name, type, preview}]
//	  added      n
//
// n numbers the operations. count numbers the cells, as in "<cell 3>" in tracebacks. One operation runs at a time. An interrupt
// (Driver.Signal, or the operation) ends the cell and keeps the state. It may come at any time. After the end of its cell it has no
// effect, in particular not on the next cell. User code shares the process and can forge messages, so the runner trusts none of
// them. A forged message misleads only the user's own session.
//
// Code that begins with the comment of executor.ConsoleCell comes from a console. If it needs another line, the driver runs nothing,
// displays executor.IncompleteType and ends the cell. Its input() asks by executor.AskType; executor.CompletionCell is for Tab. The shell has no such cells, because the console knows its grammar.
//
// Program makes a Python program that displays what a cell displays and is a program in all else. It has no control channel: it appends
// what a driver would say to a file.
//
// # Sessions in each language
//
// Python: cells run in __main__. The value of the last expression is displayed, unless the cell ends in a semicolon, and becomes _.
// The function display shows other values. The forms are those of _repr_html_ and its relatives, and matplotlib figures that are
// open at the end of a cell. IPython's display and plotly's show display, too, and clear_output does nothing. await works at top level.
// All cells have one context, so context variables last, and one event loop, which exists from the import of asyncio on. Tasks continue
// while a later cell awaits. A cell that names create_task or gather without await runs in that loop. A cell that calls asyncio.run has a
// loop of its own. A line that begins with ! is run by a shell, %pip by the interpreter's pip, and %matplotlib does nothing; any other
// magic of IPython fails and names what to use. No bytecode is written. sys.exit ends the cell. A fork that returns from a cell ends there.
// Builtins that were deleted are restored after the cell.
//
// JavaScript: cells run in V8's REPL mode. const, let and class survive a cell and may be repeated, await works at top level, and
// undefined is not displayed. require, dynamic import and Node's modules by name work, relative to the work folder. Import
// declarations do not work, and neither does import() in eval and new Function. process.exit throws, and so ends the cell. An
// interrupt ends running code, also after an await or in a timer, and ends the waiting for an operation. V8 returns a last value
// that is a string as text. That is slow (10 MB: 2 s; 100 MB: 13 s and eight times its size in memory) and ignores interrupts. End
// such a cell with a semicolon and undefined.
//
// Shell: cells run in one bash, at top level. exit ends the cell. Where the shell would end (set -e, an error in posix mode), the
// cell ends and the shell executes itself again. It keeps variables, functions, aliases, options and traps, except errexit, nounset
// and xtrace, and loses its job numbers. Without room for its state in TMPDIR or the work folder it reports that and ends. The
// restart uses the EXIT trap: a shell with an EXIT trap of the user is lost at its end. exec replaces the shell, and the session is
// lost; an exec that fails has no effect (execfail). Line numbers do not start at the cell. Without bash a POSIX shell is used. After
// its end it is started again without its state.
package drivers
