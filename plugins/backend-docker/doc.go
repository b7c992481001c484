// Package dockerbackend runs each Execution in a fresh, locked-down container that was waiting for it.
//
// A container is a runner (core/runner) as PID 1, without rights: user 1000, read-only root, no capabilities, no new
// privileges, the daemon's seccomp profile, no network, /work and /tmp in memory, limits of memory, processes and CPU. The
// runner comes from a read-only volume, so an image needs to have nothing but Python, or whatever the program is. We speak to
// it over the container's attached standard streams: no exec, no file copied, no host folder mounted. A container is used
// once, or by one Session for its life.
//
// One flow: Run refuses what cannot be; images finds, pulls or prepares the image; interpreters knows its Python; pool hands
// out a container of the class (image, runtime, network, disk) that was waiting, or waits for one; the runner in it runs the
// program; the answer goes out; cleaner removes the container behind it, while pool makes its successor.
//
// What outlives us: a runner whose host is gone keeps its program, its output and its Result for Config.SilenceSeconds. Attach
// and AdoptSession find it by the handle that the log has. What nobody comes for ends by itself, and the reaper of the next
// life removes the rest, by labels (installation, life, kind) and by claims, a file per Execution.
//
// What it is not: it builds no images but those of preparations, and knows nothing of engines, logs or owners. container.go
// decides what a container may do and is pure; client*.go are all that knows the Docker client.
package dockerbackend
