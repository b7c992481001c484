// Package uvbackend runs Python on this machine. It uses the installed interpreters, environments that uv prepares, and resident
// runners that start the programs. It is the backend of type "uv".
//
// Programs run in a box where the machine allows it: namespaces with a root folder that has the system folders of the host, the
// interpreter and the environment, and nothing else of the host (docs/sandbox.md). Capabilities.Isolation is then "namespaces".
// Elsewhere it is "none", and programs see the host's world-readable files. As far as the machine allows, the backend limits memory,
// CPU, processes and disk, and keeps programs from the network. As root each slot has an unprivileged uid of its own. Info lists what
// the machine does not allow.
//
// Backend.Run has these steps:
//
//   - Refuse a Spec with limits that cannot be enforced (refuse.go).
//   - Choose an interpreter (interpreter.go), and list what the program needs of this machine (reach.go).
//   - With requirements, find or build an environment (environment.go, buildslot.go, install.go, compile.go, cache.go).
//   - Take a slot (slots.go) and let its runner run the program.
//   - Add the backend's own fields to the Result.
//
// Without requirements the backend does not look for uv and starts no process other than the runner's.
//
// Files and folders:
//
//	<cache_dir>/environments/<key>       one environment, read-only for programs; its users hold <key>.lock
//	<cache_dir>/uv-cache, uv-cache-2 …   uv's own caches of wheels, one per build at a time; closed to programs
//	<cache_dir>/tools                    a uv that was fetched, or copied for the uids of builds
//	<cache_dir>/interpreters.json        the answers of the interpreters
//	<cache_dir>/bin/<interpreter>        python, python3 and python3.x as names of one interpreter
//	<work_dir>/<claim>                   one process's work folders; the process holds <claim>.lock while it lives
//
// An environment is prepared in a build slot, which is a slot that no program gets. Its runner starts uv and the compiler with
// limits of their own, and ends them when the plugin ends. As root the build slot has a uid from the end of run_as. When the
// build slot has no process any more, the environment is checked, given to the plugin's user, and freed of addresses with
// credentials. Only then does it get the name under which programs find it. If packages may be built, the package cache lies in
// the build's own folder, so that code of a package can change no other package. If the machine has no uv, pip fetches a pinned
// one in such a build slot, with the same limits.
//
// A process claims its work folder, and each uid that it gives to a slot, with flock. The kernel ends a claim when the process
// ends, for whatever reason. Content without a claim is therefore a leftover, and two installations on one machine do not
// interfere.
package uvbackend
