package uvbackend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// parallelBuilds is how many environments one backend prepares at once, each in its own bounds. Others wait.
const parallelBuilds = 4

// builder makes environments with uv.
type builder struct {
	name        string // of the backend in the configuration
	cache       *cache
	tool        *uvTool
	index       index
	allowBuilds bool
	bounds      bounds
	// open makes a slot that no program gets. It prefers the uid that is number n from the end of the range.
	open func(ctx context.Context, n int) (*slot, error)
	// drop gives such a slot back and reports whether nothing of it is left.
	drop func(*slot) bool
	// turns are the numbers of the builds that may run. A build has one.
	turns chan int
	log   *slog.Logger
}

func newBuilder(b *Backend) *builder {
	turns := make(chan int, parallelBuilds)
	for n := range parallelBuilds {
		turns <- n
	}
	return &builder{
		name: b.name, cache: b.cache, tool: b.tool, index: b.tool.index, allowBuilds: b.config.AllowBuilds, bounds: b.config.bounds(),
		open: b.takeBuilder, drop: b.slots.dropBuilder, turns: turns, log: b.log,
	}
}

// want is one environment that is asked for.
type want struct {
	interpreter  interpreter
	requirements []string // normalised
}

// key is the identity of w's environment: everything that may change what is in it.
func (b *builder) key(w want) string {
	parts := []string{"2", w.interpreter.key(), b.index.key, fmt.Sprint(b.allowBuilds)}
	sum := sha256.Sum256([]byte(strings.Join(append(parts, w.requirements...), "\x00")))
	return hex.EncodeToString(sum[:])
}

// build makes the environment of key unless it is there by now. A Failure says that the requirements are at fault, that they
// need more than the bounds of a build, or that the index is out of reach; an error, that we are at fault. notify is told what
// happens.
func (b *builder) build(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	late := fmt.Errorf("the environment was not prepared within backends.%s.prepare_seconds (%d)", b.name, b.bounds.seconds)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(b.bounds.seconds)*time.Second, late)
	defer cancel()
	failure, err := b.locked(ctx, key, w, notify)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		return unavailable(late.Error()), nil
	}
	return failure, err
}

// locked is build with the key locked.
func (b *builder) locked(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	held, err := lock(ctx, b.cache.lockPath(key), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if _, err := b.cache.check(key); err == nil {
		return nil, nil // another process was quicker
	}
	b.cache.misses.Add(1)
	say := func(message string) { notify(executor.Progress{Phase: executor.PhasePrepare, Message: message}) }
	program, err := b.tool.find(ctx, say)
	if err != nil {
		if executor.CodeOf(err) == executor.Unavailable && ctx.Err() == nil {
			return unavailable(err.Error()), nil
		}
		return nil, err
	}
	var turn int
	select {
	case turn = <-b.turns:
		defer func() { b.turns <- turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.cache.cleanKey(key)
	temp, err := os.MkdirTemp(b.cache.dir, ".tmp-"+key+"-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = removeAll(temp) }()
	say(fmt.Sprintf("installing %d requirements for Python %s", len(w.requirements), w.interpreter.Version))
	failure, err := b.prepare(ctx, turn, temp, program, w, notify)
	if failure != nil || err != nil {
		return failure, err
	}
	return b.finish(key, filepath.Join(temp, "env"), w)
}

// prepare fills temp/env: what it starts has ended when it returns without an error.
func (b *builder) prepare(ctx context.Context, turn int, temp string, program uvProgram, w want, notify func(executor.Progress)) (failure *executor.Failure, err error) {
	x, err := b.openBox(ctx, turn, temp)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !x.close() && err == nil {
			failure, err = nil, executor.Errorf(executor.Internal, "processes that prepare an environment do not end")
		}
	}()
	if program.path, err = b.tool.reachable(ctx, program, x.uid()); err != nil {
		return nil, err
	}
	x.reach = append(x.reach, program.path)
	x.reach = append(x.reach, filepath.Dir(filepath.Dir(w.interpreter.Path)), w.interpreter.Path)
	if failure, err := b.install(ctx, x, program, w, notify); failure != nil || err != nil {
		return failure, err
	}
	return b.compile(ctx, x, w.interpreter)
}

// finish makes the folder dir, which nobody writes to any more, the environment of key.
func (b *builder) finish(key, dir string, w want) (*executor.Failure, error) {
	if err := own(dir); err != nil {
		return nil, fmt.Errorf("take over an environment: %w", err)
	}
	os.Remove(filepath.Join(dir, ".lock")) // uv's own, writable by all
	files, bytes, err := measure(dir)
	if err != nil {
		return nil, err
	}
	if failure := b.bounds.exceeded(b.name, bytes, files); failure != nil {
		return failure, nil
	}
	packages, err := resolved(dir)
	if err != nil {
		return nil, err
	}
	if err := withoutSecrets(dir); err != nil {
		return nil, fmt.Errorf("take addresses out of an environment: %w", err)
	}
	return nil, b.cache.commit(key, dir, marker{Python: w.interpreter.Version, Requirements: packages})
}
