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

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/runner/network"
)

// parallelBuilds is how many environments a backend prepares at once. Each has its own bounds. Further builds wait.
const parallelBuilds = 4

// builder makes environments with uv. Jobs that want the same environment share one build.
type builder struct {
	*backend.Group[*executor.Failure]

	name   string // of the backend in the configuration
	config Config
	cache  *cache
	tool   *uvTool
	index  index
	// fetches says what preparations may fetch from.
	fetches fetchproxy.Policy
	// open makes a slot that no program gets, and in which port of this host's loopback is reached. It prefers the uid that is number n from
	// the end of the range.
	open func(ctx context.Context, n int, port uint16) (*slot, error)
	// drop gives a slot of open back and reports whether no process of it is left.
	drop func(*slot) bool
	// turns has the numbers 0 to parallelBuilds-1 that no build uses. A build takes one while it runs.
	turns chan int
	log   *slog.Logger
}

// newBuilder returns a builder whose builds end with base at the latest.
func newBuilder(base context.Context, b *Backend) *builder {
	turns := make(chan int, parallelBuilds)
	for n := range parallelBuilds {
		turns <- n
	}
	made := &builder{
		Group: backend.NewGroup[*executor.Failure](base), name: b.name, config: b.config, cache: b.cache, tool: b.tool, index: b.tool.index,
		open: b.takeBuilder, drop: b.slots.dropBuilder, turns: turns, log: b.log,
	}
	made.fetches.Sources = b.tool.index.sources
	made.fetches.Ranges, _ = network.ParseRanges(b.config.NetworkOpen) // they were checked with the configuration
	b.tool.enclose = made.enclose
	return made
}

// want describes a requested environment.
type want struct {
	interpreter  interpreter
	requirements []string // normalised
}

// key returns the identity of w's environment: a hash of all inputs that may change its content.
func (b *builder) key(w want) string {
	parts := []string{"3", w.interpreter.key(), b.index.key, fmt.Sprint(b.config.AllowBuilds)}
	sum := sha256.Sum256([]byte(strings.Join(append(parts, w.requirements...), "\x00")))
	return hex.EncodeToString(sum[:])
}

// environment returns the environment of w, in use until it is released. It builds a missing environment. notify gets Progress, on
// this goroutine. When ctx ends, environment returns the cause.
func (b *builder) environment(ctx context.Context, w want, notify func(executor.Progress)) (*environment, *executor.Failure, error) {
	key := b.key(w)
	if env, ok := b.cache.open(key); ok {
		b.cache.hits.Add(1)
		return env, nil, nil
	}
	// Another process may evict a new environment before this one opens it. Twice in a row means that the cache is too small.
	for range 2 {
		if failure, err := b.shared(ctx, key, w, notify); failure != nil || err != nil {
			return nil, failure, err
		}
		if env, ok := b.cache.open(key); ok {
			return env, nil, nil
		}
	}
	return nil, nil, executor.Errorf(executor.Unavailable, "the environment was removed as soon as it was built: backends.uv.cache_bytes may be too small")
}

// shared builds the environment of key, or waits for a running build of that environment.
func (b *builder) shared(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	return b.Do(ctx, key, notify, func(ctx context.Context, notify func(executor.Progress)) (*executor.Failure, error) {
		defer b.Go(func(ctx context.Context) { b.cache.evict(ctx, key) })
		return b.build(ctx, key, w, notify)
	})
}

// build makes the environment of key unless it exists by now. It returns a Failure if the requirements are at fault, exceed the
// bounds of a build, or need an index that cannot be reached. An error means that the server failed. notify gets Progress.
func (b *builder) build(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	late := fmt.Errorf("the environment was not prepared within backends.%s.prepare_seconds (%d)", b.name, b.config.PrepareSeconds)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(b.config.PrepareSeconds)*time.Second, late)
	defer cancel()
	failure, err := b.locked(ctx, key, w, notify)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		return unavailable(late.Error()), nil
	}
	return failure, err
}

// locked locks the key exclusively and builds its environment.
func (b *builder) locked(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	held, err := lock(ctx, b.cache.lockPath(key), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if _, err := b.cache.check(key); err == nil {
		return nil, nil // another process has built it
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
	fresh, failure, err := b.prepare(ctx, turn, temp, program, w, notify)
	if failure != nil || err != nil {
		return failure, err
	}
	return b.finish(key, filepath.Join(temp, "env"), w, fresh)
}

// prepare fills temp/env. When it returns without an error, all processes that it started have ended. fresh is the environment before
// packages were installed.
func (b *builder) prepare(ctx context.Context, turn int, temp string, program uvProgram, w want, notify func(executor.Progress)) (fresh madeByUV, failure *executor.Failure, err error) {
	x, err := b.openBuildSlot(ctx, turn, temp, b.config.AllowBuilds)
	if err != nil {
		return fresh, nil, err
	}
	defer func() {
		if !x.close() && err == nil {
			failure, err = nil, executor.Errorf(executor.Internal, "processes of the preparation of an environment do not end")
		}
	}()
	if program.path, err = b.tool.reachable(ctx, program, x.how, x.uid()); err != nil {
		return fresh, nil, err
	}
	x.reach = append(append(x.reach, program.path), w.interpreter.reach...)
	if failure, err := b.install(ctx, x, program, w, notify); failure != nil || err != nil {
		return fresh, failure, err
	}
	if failure, err = b.compile(ctx, x, w.interpreter); failure == nil && err == nil {
		err = b.listFonts(ctx, x, w.interpreter)
	}
	return x.fresh, failure, err
}

// finish makes the folder dir the environment of key. No process may write to dir any more.
func (b *builder) finish(key, dir string, w want, fresh madeByUV) (*executor.Failure, error) {
	if err := own(dir); err != nil {
		return nil, fmt.Errorf("take over an environment: %w", err)
	}
	os.Remove(filepath.Join(dir, ".lock")) // uv's own lock file, which all users may write to
	fonts, err := keepFonts(filepath.Join(filepath.Dir(dir), "fonts"), dir)
	if err != nil {
		return nil, fmt.Errorf("keep the list of fonts of an environment: %w", err)
	}
	files, bytes, err := measure(dir)
	if err != nil {
		return nil, err
	}
	if failure := b.exceeded(bytes, files); failure != nil {
		return failure, nil
	}
	packages, err := resolved(dir)
	if err != nil {
		return nil, err
	}
	if err := withoutSecrets(dir); err != nil {
		return nil, fmt.Errorf("take addresses out of an environment: %w", err)
	}
	code, err := fresh.startupCode(dir)
	if err != nil {
		return nil, fmt.Errorf("look for code that runs at the start of an environment: %w", err)
	}
	return nil, b.cache.commit(key, dir, marker{Python: w.interpreter.Version, Requirements: packages, StartupCode: code, Fonts: fonts})
}
