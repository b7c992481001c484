// Package drivers holds the programs that make an interpreter a session: one embedded file per language, run by the
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
//	driver → runner
//	  ready      version
//	  reading    n: stdin is open, it may come and end
//	  display    n, display {data {mime: base64}, value, truncated}
//	  done       n, code, dropped: the cell has ended; all that it wrote has been flushed before
//	  variables  n, variables [{name, type, preview}]
//	  added      n
//
// n numbers the operations, count the cells: "<cell 3>" is what tracebacks say. One operation at a time. SIGINT means: end
// the cell, keep the state. User code shares the process, so the runner believes nothing it reads: what is forged here
// misleads nobody but the forger's own session.
package drivers
