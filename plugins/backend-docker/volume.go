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

// hostsFile lies beside the runner and is /etc/hosts of sandboxes without a network.
const (
	hostsFile = "hosts"
	hostsText = "127.0.0.1\tlocalhost " + hostName + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"
)

// program is the runner as it is brought into containers.
type program struct {
	content []byte
	// command is what follows the file's name.
	command []string
	hash    string
}

// runnerProgram is the embedded runner, else this program with its own command. Codes: unavailable (neither can run in a
// container).
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

// argv is the command of a sandbox's PID 1. It has no rights to mounts of its own, so it need not try.
func (p program) argv() []string {
	return append(append([]string{path.Join(runnerFolder, runnerFile)}, p.command...), "--stdio", "--own-mounts")
}

// volumeName says whose it is and what is in it.
func (p program) volumeName(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return "python-executor-runner-" + hex.EncodeToString(sum[:4]) + "-" + p.hash[:16]
}

// mark is written after the runner: a volume that has it is whole.
func (p program) mark() string { return runnerFile + "." + p.hash[:16] }

// archive is the volume's content, mark last.
func (p program) archive() ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct {
		name    string
		content []byte
		mode    int64
	}{{runnerFile, p.content, 0o755}, {hostsFile, []byte(hostsText), 0o444}, {p.mark(), nil, 0o444}} {
		h := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

// runnerVolume is the volume of the daemon that has the runner. It is filled once, through a container that is made and
// never started: that works with a remote daemon, and on images in which nothing can be executed.
type runnerVolume struct {
	daemon  *daemon
	program program
	place   func() place

	mu     sync.Mutex
	filled bool
	path   string // on the daemon's machine
}

// ensure makes sure that the volume is there and whole, and returns where its hosts file is on the daemon's machine; empty:
// unknown. image is any image of the daemon.
func (v *runnerVolume) ensure(ctx context.Context, image string) (hosts string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.filled {
		if err := v.fill(ctx, image); err != nil {
			return "", fmt.Errorf("bring the runner to the daemon: %w", err)
		}
		v.filled = true
	}
	if v.path == "" {
		return "", nil
	}
	return path.Join(v.path, hostsFile), nil
}

// doubt makes the next ensure look again: somebody may have removed the volume.
func (v *runnerVolume) doubt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filled = false
}

func (v *runnerVolume) fill(ctx context.Context, image string) (err error) {
	name := v.place().Volume
	labels := map[string]string{labelInstance: v.place().Instance, labelBoot: v.place().Boot, labelHash: v.program.hash}
	made, err := v.daemon.createVolume(ctx, name, labels)
	if err == nil && bootOver(made.Labels[labelBoot]) && v.daemon.removeVolume(ctx, name) == nil {
		// Whose life is over is taken for left over by others, so it is to be ours; what is in use is not.
		made, err = v.daemon.createVolume(ctx, name, labels)
	}
	if err != nil {
		return err
	}
	v.path = made.Path
	creating, cancel := cleanUp(ctx) // not cut off: see factory.try
	defer cancel()
	id, err := v.daemon.create(creating, fillSpec(v.place(), image, name, newName(kindFill), time.Now()))
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

// volumePause is how long remove waits for the daemon before it tries again.
const volumePause = 20 * time.Millisecond

// remove removes the volume unless a container uses it. Whoever needs it next fills it again, in some 30 ms. A daemon forgets a
// container before it lets go of the container's volumes, so a volume may be in use that no container has; remove waits for
// that. ctx bounds it.
func (v *runnerVolume) remove(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filled = false // if it ever was: an earlier life that was killed may have left one
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
