// Package uvbackend runs Python on this machine: interpreters that are installed here, environments that uv prepares, and
// resident runners that start the programs. It is the backend of type "uv".
//
// It is no sandbox of files: Capabilities.Isolation is "none" and programs see the host's world-readable files. What is
// kept from them, each as far as this machine allows and Info says so: the network, another's work folder and processes
// (an unprivileged uid per slot), memory, CPU, processes and disk.
//
// One flow, Backend.Run: refuse what cannot be enforced (refuse.go) → choose an interpreter (interpreter.go) → with
// requirements, find or build an environment (environment.go, box.go, install.go, compile.go, cache.go) → take a slot (slots.go), whose runner
// does the rest → put the backend's own part into the Result. Without requirements no uv process runs, uv is not even
// looked for, and nothing but the runner's work lies in the way of a program.
//
// What lies where:
//
//	<cache_dir>/environments/<key>       one environment, read-only for programs; <key>.lock says who uses it
//	<cache_dir>/uv-cache, uv-cache-2 …   uv's own caches of wheels, one per build at a time; closed to programs
//	<cache_dir>/tools                    a uv that was fetched, or copied for the uids of builds
//	<cache_dir>/interpreters.json        what the interpreters said when they were asked
//	<cache_dir>/bin/<interpreter>        python, python3 and python3.x as names of one interpreter
//	<work_dir>/<claim>                   one process's work folders; <claim>.lock is held while it lives
//
// An environment is prepared in a box: a slot that no program gets, whose runner starts uv and the compiler with limits of their
// own and ends them when the plugin dies. As root its uid is one from the end of run_as. When nothing is left in the box, what it
// made is checked, becomes ours, loses addresses with credentials, and only then gets the name under which programs find it. Where
// packages may be built the package cache lies in the build's own folder, so that code of one package changes no other.
//
// A process claims what it uses with flock: its work folder, and each uid it hands to a slot. The kernel lets go of a
// claim when the process dies, however it dies, so what nobody holds is garbage, and two installations on one machine
// never meet.
package uvbackend
