package dockerbackend

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/binary"
)

// hostsFile is in the same folder as the runner. It is /etc/hosts of sandboxes without a network.
const (
	hostsFile = "hosts"
	hostsText = "127.0.0.1\tlocalhost " + hostName + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"
)

// program is the runner's executable, as it is copied into containers.
type program struct {
	content []byte
	// command holds the arguments that follow the file's name.
	command []string
	hash    string
}

// runnerProgram returns the embedded runner, else this program with the command runner. Codes: unavailable (neither can run in
// a container).
func runnerProgram() (program, error) {
	if content := binary.Bytes(); content != nil {
		return newProgram(content, nil), nil
	}
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return program{}, executor.Errorf(executor.Unavailable, "read this program: %w", err)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return program{}, executor.Errorf(executor.Unavailable, "read this program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return program{}, executor.Errorf(executor.Unavailable, "this program has no embedded runner and is not static, so it cannot run in a container: build it with make build")
		}
	}
	return newProgram(content, []string{"runner"}), nil
}

func newProgram(content []byte, command []string) program {
	sum := sha256.Sum256(append([]byte(hostsText), content...))
	return program{content: content, command: command, hash: hex.EncodeToString(sum[:])}
}

// argv returns the command of a sandbox's PID 1. --own-mounts tells the runner not to try mounts of its own, for which it has
// no rights.
func (p program) argv() []string {
	return append(append([]string{path.Join(runnerFolder, runnerFile)}, p.command...), "--stdio", "--own-mounts")
}

// volumeName returns a name that identifies the installation and the runner.
func (p program) volumeName(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return "python-executor-runner-" + hex.EncodeToString(sum[:4]) + "-" + p.hash[:16]
}

// mark is the name of a file that is written last. A volume that has it is complete.
func (p program) mark() string { return runnerFile + "." + p.hash[:16] }

// archive returns the volume's content as a tar. The mark comes last.
func (p program) archive() ([]byte, error) {
	var buf bytes.Buffer
	w := packer{Writer: tar.NewWriter(&buf)}
	w.file(runnerFile, p.content, 0o755)
	w.file(hostsFile, []byte(hostsText), 0o444)
	w.file(p.mark(), nil, 0o444)
	return buf.Bytes(), w.end()
}

// runnerVolume is the daemon's volume that holds the runner. It is filled once, through a container that is created but never
// started. That works with a remote daemon, and with images in which nothing can be executed.
type runnerVolume struct {
	daemon  *daemon
	program program
	place   func() place

	mu     sync.Mutex
	filled bool
	path   string // the folder on the daemon's machine; empty: unknown
}

// ensure makes sure that the volume exists and is complete. It returns the path of the hosts file on the daemon's machine;
// empty means unknown. image is any image that the daemon has.
func (v *runnerVolume) ensure(ctx context.Context, image string) (hosts string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.filled {
		if err := v.fill(ctx, image); err != nil {
			return "", fmt.Errorf("copy the runner to the daemon: %w", err)
		}
		v.filled = true
	}
	if v.path == "" {
		return "", nil
	}
	return path.Join(v.path, hostsFile), nil
}

// doubt makes the next ensure check the volume again.
func (v *runnerVolume) doubt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filled = false
}

func (v *runnerVolume) fill(ctx context.Context, image string) (err error) {
	name := v.place().Volume
	labels := map[string]string{labelInstance: v.place().Instance, labelBoot: v.place().Boot, labelHash: v.program.hash}
	// The daemon finishes a cancelled request, so the volume could appear after Close has removed it.
	creating, cancel := cleanUp(ctx)
	defer cancel()
	made, err := v.daemon.createVolume(creating, name, labels)
	if err == nil && bootOver(made.Labels[labelBoot]) && v.daemon.removeVolume(ctx, name) == nil {
		// Other installations take a volume of an ended life for a leftover. So this life makes the volume its own, unless it
		// is in use.
		made, err = v.daemon.createVolume(creating, name, labels)
	}
	if err != nil {
		return err
	}
	v.path = made.Path
	id, err := v.daemon.create(ctx, fillSpec(v.place(), image, name, newName(kindFill), time.Now()))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := cleanUp(ctx)
		defer cancel()
		err = errors.Join(err, v.daemon.remove(ctx, id))
	}()
	if _, err := v.daemon.size(ctx, id, path.Join(runnerFolder, v.program.mark())); executor.CodeOf(err) != executor.NotFound {
		return err
	}
	archive, err := v.program.archive()
	if err != nil {
		return executor.Errorf(executor.Internal, "pack the runner: %w", err)
	}
	return v.daemon.copyTo(ctx, id, runnerFolder, bytes.NewReader(archive))
}

// volumePause is the pause of remove before it tries again.
const volumePause = 20 * time.Millisecond

// remove removes the volume unless a container uses it. The next user fills it again, which takes about 30 ms. A daemon forgets
// a container before it releases the container's volumes. So a volume may be in use although no container has it; remove waits
// for that. ctx bounds it.
func (v *runnerVolume) remove(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filled = false // remove also tries if this life never filled it: an earlier life may have left it
	name := v.place().Volume
	for {
		err := v.daemon.removeVolume(ctx, name)
		if executor.CodeOf(err) != executor.Conflict {
			return gone(err)
		}
		used, listErr := v.daemon.volumeUsed(ctx, name)
		if used || listErr != nil {
			return listErr
		}
		select {
		case <-time.After(volumePause):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
