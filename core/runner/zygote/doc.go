// Package zygote forks Python interpreters that have started already, so that a program does not wait for the start of its own.
//
// A Zygote is an interpreter that has done all that comes before its main file. Zygote.Next makes a Slot: a copy that waits. Slot.Run
// makes the copy a program. A Zygote belongs to one interpreter, one set of installed packages, one entrypoint, and programs that may
// trust each other: copies share the seed of hashes and the layout of addresses.
//
// Programs behave as under `python main.py`. Where a copy would not, Zygote.Refuses or a *RefusedError of Slot.Run says why, and the
// caller starts an interpreter instead.
//
// # How the interpreter gets there
//
// The Zygote is started as `python main.py`, with python/sitecustomize.py as its module sitecustomize. The interpreter imports that
// module near the end of its start. The module removes its traces and leaves a function in sys.path_hooks. The interpreter calls the
// functions there for main.py, which may be an archive, and opens main.py after them. Ours serves the runner and does not return. In a
// copy it returns, and the interpreter opens main.py, runs it and ends in its usual way. So everything about the main file is the
// interpreter's own work: what __main__ has, decoding, tracebacks, the exit code, atexit, the end of threads, finalizers and the flush of
// the streams. Python 3.9 to 3.14 do so.
//
// The kernel copies a page of memory when a copy first changes it. python/_fork_pages.py lets a copy take the pages that it will change
// before it waits. The Zygote learns them from a copy that rehearses: it gets a request of the Zygote's own, and stops where the
// interpreter would open main.py.
//
// At its end, the interpreter takes all modules and types apart, which changes most of the memory that a copy shares. That is needed
// only for objects that do something at their end. python/_fork_end.py looks for such objects after the exit functions and the flush of the
// streams. It ends the process by _exit if there are none and the main file was run to its end, or was left by an exception other than
// SystemExit and KeyboardInterrupt. In all other cases the interpreter ends in its own way.
//
// HOME names no folder while the interpreter starts, because the module site runs code below it. The module restores the variable, which
// PYEXEC_HOME holds until then.
//
// The Zygote runs the driver of programs that display (drivers.ProgramDriver), and makes the types of syntax trees, which that driver needs.
//
// The module comes from an archive in a memfd, descriptor 4, which PYTHONPATH names. It removes both. It needs modules of C,
// which are not in sys.modules afterwards. prctl(PR_SET_MM) gives a copy its command line and variables in /proc.
//
// An interpreter that Start starts runs one program itself, and makes no copies. It saves the wait for the interpreter, and no CPU time.
//
// The Zygote may be PID 1 of a PID namespace. It then reaps orphans, and ends every process when the runner asks. The kernel drops signals
// of programs to it, and it is not dumpable, so that programs of the same uid cannot disturb it. Elsewhere it blocks all signals, and kills
// only the sessions of its copies.
//
// # What programs can tell
//
//   - Copies of one Zygote have the same seed of hashes, unless Refuses has seen PYTHONHASHSEED in the variables.
//   - The objects of the start are frozen (gc.freeze) until the end, and the collector's counts begin at 0. A program is refused whose main
//     file mentions gc, __del__, weakref, __subclasses__ or setproctitle.
//   - A program that is still traced, profiled or monitored at the end is ended by the interpreter. A generator with finally or an object with
//     __del__ that an imported module has put into a module of the start then ends late, or never.
//   - sys.__interactivehook__ has a weak reference. From Python 3.13 on, a finder in sys.path_importer_cache has.
//   - atexit has one function more, unless the main file mentions atexit: atexit._ncallbacks counts it, and atexit.unregister compares it.
//   - Without a word of it in the main file, imported modules may set an audit hook, which sees calls of python/_fork_end.py; leave an
//     iterator of os.scandir, which then gives no warning; or run exec or eval of a text that ends with KeyboardInterrupt, which makes
//     the interpreter end by SIGINT and a copy by 0 or 1; leave a numpy.nditer with updateifcopy, which then gives no warning; or use
//     ctypes beside numpy and keep nothing of it, or only look up ctypes.pythonapi["name"], while C has an exit function or a library a
//     destructor, which then do not run. A signal that comes at the very end may be handled in functions of python/_fork_end.py.
//   - A program whose end removes both __file__ and __cached__ from __main__, and no other name, and then leaves by sys.exit, ends with 0.
//     Programs whose main file mentions globals, locals, vars or __cached__ are ended by the interpreter.
//   - Modules of Config.Preimport and Config.Learned are in sys.modules from the start. What they draw at random when they are imported is the same in all
//     copies, except for numpy.random and the random generator of Python. Threads that they start must end before a fork, as those of
//     OpenBLAS do, which starts them again when it needs them. Programs with other variables than Config.Env are refused then, and
//     programs with a module of the same name beside their main file. A program that puts such a module elsewhere into sys.path gets the
//     module that was imported before.
//   - The list sys.path_hooks has room for more functions than usual (sys.getsizeof).
//   - /proc/self/maps has _ctypes, _socket and select, and object.__subclasses__ their types and those of _operator and ast.
//   - The process number of the parent is the Zygote's.
//
// # Protocol
//
// Messages are packets (SOCK_SEQPACKET) of words that are separated by zero bytes. Descriptor 3 of the Zygote is its control socket.
//
//	runner → Zygote
//	  start MODULE…     the first message: what to import before the first copy. The import of ?MODULE may fail with any error
//	  learn MODULE…     the first message in its place: copies also say what their main files import
//	  alone MODULE…     the first message in its place: no copies. The socket is then also that of a copy
//	  end               kill all processes. As PID 1 also remove what they leave in the IPC namespace
//	  next N            do as for end, and then make copy N. The copy's own socket comes as a descriptor
//	Zygote → runner
//	  ready FILE MODULE…  FILE is code of the environment that has run at the start, or empty; then the modules that were imported
//	  moved               in place of ready: the folder was gone at the start
//	  failed N ERROR      there is no copy N
//	  exited N STATUS CPU RSS  the wait status, microseconds of CPU time, the peak of memory in KiB
//	  empty               answers end
//	copy → runner, over its own socket
//	  waiting           the kernel adds the process number (SCM_CREDENTIALS)
//	  started MODULE…   the program begins; after learn, what its main file imports
//	  exec REASON       the copy has ended: only a new interpreter does it right
//	  clash MODULE      likewise: the folder of the main file has a module that was imported before
//	runner → copy
//	  run ARGC DIR ARG… VARIABLE…  with descriptors: 0, 1 and 2 of the program, then files that it writes "0" into to enter control groups
//
// At the end of its control socket the Zygote kills all and exits. At the end of its own socket a waiting copy exits.
package zygote
