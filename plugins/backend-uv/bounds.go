package uvbackend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// bounds are what the preparation of one environment may use.
type bounds struct {
	memory, pids, seconds int64
	// bytes and files bound an environment when it is unpacked, source what of it is compiled ahead.
	bytes, files, source int64
}

func (c Config) bounds() bounds {
	return bounds{
		memory: c.PrepareMemoryBytes, pids: c.PreparePIDs, seconds: c.PrepareSeconds,
		bytes: c.EnvironmentBytes, files: c.EnvironmentFiles, source: c.CompileBytes,
	}
}

const (
	// watchPause is the time between two looks at what a build has written.
	watchPause = 200 * time.Millisecond
	// cacheSlack and cacheSlackFiles are what the package cache may take beside the packages: answers of the index.
	cacheSlack      = 256 << 20
	cacheSlackFiles = 10000
)

// overLimit is why a build is ended.
type overLimit struct{ failure *executor.Failure }

func (o overLimit) Error() string { return o.failure.Message }

// over returns the Failure of a build that ended because of a limit; nil: it did not.
func over(err error) *executor.Failure {
	if o, ok := errors.AsType[overLimit](err); ok {
		return o.failure
	}
	return nil
}

func tooMuch(format string, args ...any) *executor.Failure {
	return &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "requirements_txt", Message: "requirements_txt: " + fmt.Sprintf(format, args...)}
}

// exceeded says that an environment of that size is too large; nil: it is not.
func (l bounds) exceeded(name string, bytes, files int64) *executor.Failure {
	switch {
	case bytes > l.bytes:
		return tooMuch("the packages are larger than backends.%s.environment_bytes (%d) when they are unpacked", name, l.bytes)
	case files > l.files:
		return tooMuch("the packages have more files than backends.%s.environment_files (%d)", name, l.files)
	}
	return nil
}

// tooMuchMemory is the Failure of a step that the memory limit ended. where is the file that was compiled, or empty.
func (l bounds) tooMuchMemory(name, step, where string) *executor.Failure {
	if where != "" {
		step += " " + where
	}
	return tooMuch("%s needs more memory than backends.%s.prepare_memory_bytes (%d)", step, name, l.memory)
}

// watch looks at what a build writes until ctx ends, and calls end when that is more than it may be.
func (x *box) watch(ctx context.Context, end func(error)) {
	ticks := time.NewTicker(watchPause)
	defer ticks.Stop()
	for {
		if failure := x.look(ctx); failure != nil {
			end(overLimit{failure})
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// look measures what the build has written: its own folder, and what is new in the package cache.
func (x *box) look(ctx context.Context) *executor.Failure {
	files, bytes := written(ctx, x.temp, time.Time{})
	if failure := x.bounds.exceeded(x.name, bytes, files); failure != nil {
		return failure
	}
	if x.private {
		return nil // the package cache lies in the build's own folder
	}
	files, bytes = written(ctx, x.packages, x.begun)
	return x.bounds.exceeded(x.name, bytes-cacheSlack, files-cacheSlackFiles)
}

// written counts the files below dir that were made or changed since, and their bytes. What was unpacked earlier is passed over
// whole, because nothing is changed in it.
func written(ctx context.Context, dir string, since time.Time) (files, bytes int64) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return filepath.SkipAll
		}
		if err != nil || path == dir {
			return nil // it is gone by now
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		old := changed(info).Before(since)
		if e.IsDir() {
			if old && strings.HasPrefix(filepath.Base(filepath.Dir(path)), "archive-") {
				return filepath.SkipDir
			}
			return nil
		}
		if !old {
			files++
			if info.Mode().IsRegular() {
				bytes += info.Size()
			}
		}
		return nil
	})
	return files, bytes
}

// changed is when a file's inode was changed last, which nobody can set.
func changed(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}
