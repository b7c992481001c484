// Package dockerbackend runs each Execution in a fresh, locked-down container that was waiting for it.
//
// PID 1 of a container is a runner (core/runner). It runs as user 1000, with a read-only root, no capabilities, no new
// privileges, the daemon's seccomp profile and no network. Under gVisor the runner is root instead. /work and /tmp are in
// memory; memory, processes and CPU are limited. The runner comes from a read-only volume, so an image needs only Python, or
// the program that is to run. The backend talks to the runner over the container's attached standard streams. It uses no exec,
// copies no files and mounts no host folder. A container is used once, or by one Session for its life.
//
// An Execution takes these steps. Run refuses what is not possible. images finds, pulls or prepares the image, and interpreters
// finds its Python. pool returns a waiting container of the class (image, runtime, network, disk), or makes one. The runner in
// it runs the program, and the Result is returned. Then cleaner removes the container in the background, while pool makes its
// successor.
//
// A runner without a client keeps its program, its output and its Result for Config.SilenceSeconds. Attach and AdoptSession
// find it by the handle in the log. Without a client the runner then ends by itself. The reaper of the next life removes the
// rest. It finds containers by labels (installation, life, kind) and by claims, one file per Execution.
//
// The package builds no images except those of preparations, and knows nothing of engines, logs or owners. container.go decides
// what a container may do. Only client*.go import the Docker client.
package dockerbackend
