// Package fake is a Backend without an operating system. It passes the suite core/executor/backendtest, and hooks can make it
// break the rules. The tests of the Engine, the frontends and the command line use it.
//
// A program for the fake is a list of directives, one a line, interpreted in this process:
//
//	print TEXT              a line on stdout; print-err: on stderr
//	write TEXT              the same without the line's end; write-err
//	hex STREAM DIGITS       raw bytes on a stream
//	flood STREAM SIZE       SIZE bytes of numbered lines ("%015d\n"), as backendtest.FloodByte has them
//	exit N                  ends with that code
//	raise TEXT              a traceback on stderr, exit 1
//	signal NAME             ends by that signal: signal KILL
//	sleep DURATION          also: hang (for ever), busy DURATION (counts as CPU time)
//	read-stdin              copies stdin to stdout; count-stdin prints its length; read-line prints one line; close-stdin
//	cat PATH                a file to stdout; exists PATH and executable PATH print true or false; ls prints every file with its size
//	write-file PATH TEXT    fill-file PATH SIZE; remove PATH; resize PATH SIZE: it gets that size while it is collected
//	env                     the environment, sorted, as Go-quoted lines; args likewise, print-args as they are; argv0, cwd
//	tmpdir                  prints true when TMPDIR lies outside of the work folder
//	ignore-term             SIGTERM does nothing; on-term N: SIGTERM makes it exit N;
//	                        on-int PATH: SIGINT makes it write an empty file and exit 0
//	spawn-grandchild TEXT   a descendant that holds the streams, ignores SIGTERM and prints TEXT after an hour
//	fork N                  N processes at once: prints "forked N" or, over the limit, "refused after" the number that came to be
//	alloc SIZE              memory: ends the program when over the limit
//	connect HOST:PORT       prints connected or unreachable; loopback prints up or down
//	import NAME             needs that requirement; python prints the version; host-file PATH prints visible or hidden
//	wait NAME               blocks until Backend.Release(NAME)
//	set NAME VALUE          a name of the interpreter's; get NAME prints it; add NAME N; value NAME displays it as the last expression
//	display MIME TEXT       a Display; display-size MIME SIZE
//	later DURATION TEXT     prints TEXT after that time; in a Session also when the Execution has ended;
//	                        later-when PATH MADE TEXT does so when the file PATH is there, and then makes the empty file MADE
//	await PATH              blocks until the file PATH is there
//	tick PATH               prints "." every 20 ms until the file PATH is there
//	ignore-int              SIGINT does nothing (the same as ignore-term)
//	symlink TARGET PATH     a link, wherever it leads; mkfifo PATH
//	backend-error CODE TEXT Run returns that error; backend-panic TEXT; backend-die returns unavailable
//
// TEXT is the rest of the line, or a Go-quoted string. SIZE is a number with KB, MB or GB (powers of 1024). Empty lines
// and lines that begin with # do nothing. An unknown directive is a SyntaxError of the program: a traceback and exit 1.
//
// In a Session (Capabilities.Sessions) code shares its names and files, a command ("fake -c TEXT") the files. The
// interpreter is told to stop by SIGINT; "signal NAME" is its death. With Capabilities.Attach a Session outlives its
// Backend: the one that Abandon returns can adopt it.
//
// Everything waits on timers, channels and contexts only, so it runs on the fake clock of a testing/synctest bubble;
// connect and host-file are the two directives that touch the real machine.
package fake
