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

const (
	// watchPause is the time between two measurements of a build.
	watchPause = 200 * time.Millisecond
	// cacheSlack and cacheSlackFiles are the bytes and files that a build may add to the package cache beside the packages:
	// responses of the index.
	cacheSlack      = 256 << 20
	cacheSlackFiles = 10000
)

// overLimit is the cause that cancels a build that exceeds its bounds, or fetches what it must not.
type overLimit struct{ failure *executor.Failure }

func (o overLimit) Error() string { return o.failure.Message }

// over returns the Failure of a build that exceeded its bounds, or nil for any other cause.
func over(err error) *executor.Failure {
	if o, ok := errors.AsType[overLimit](err); ok {
		return o.failure
	}
	return nil
}

func tooMuch(format string, args ...any) *executor.Failure {
	return &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "requirements_txt", Message: "requirements_txt: " + fmt.Sprintf(format, args...)}
}

// exceeded returns the Failure of an environment of that size, or nil if the size is within the bounds.
func (b *builder) exceeded(bytes, files int64) *executor.Failure {
	switch {
	case bytes > b.config.EnvironmentBytes:
		return tooMuch("the unpacked packages are larger than backends.%s.environment_bytes (%d)", b.name, b.config.EnvironmentBytes)
	case files > b.config.EnvironmentFiles:
		return tooMuch("the packages have more files than backends.%s.environment_files (%d)", b.name, b.config.EnvironmentFiles)
	}
	return nil
}

// tooMuchMemory returns the Failure of a step that the memory limit ended. where is the file that the step compiled, or "".
func (b *builder) tooMuchMemory(step, where string) *executor.Failure {
	if where != "" {
		step += " " + where
	}
	return tooMuch("%s needs more memory than backends.%s.prepare_memory_bytes (%d)", step, b.name, b.config.PrepareMemoryBytes)
}

// watch measures what a build writes until ctx ends. When the build exceeds its bounds, watch calls end and returns.
func (x *buildSlot) watch(ctx context.Context, end func(error)) {
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

// look measures the build's folder and the new content of the package cache. It returns a Failure if they exceed the bounds.
func (x *buildSlot) look(ctx context.Context) *executor.Failure {
	files, bytes := written(ctx, x.temp, time.Time{})
	if failure := x.builder.exceeded(bytes, files); failure != nil {
		return failure
	}
	if x.private {
		return nil // the package cache lies in the build's own folder
	}
	files, bytes = written(ctx, x.packages, x.begun)
	return x.builder.exceeded(bytes-cacheSlack, files-cacheSlackFiles)
}

// written returns the number and the size of the files below dir that were created or changed after since. It skips the folders of
// packages that were unpacked before, because uv never changes them.
func written(ctx context.Context, dir string, since time.Time) (files, bytes int64) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return filepath.SkipAll
		}
		if err != nil || path == dir {
			return nil // the file was removed meanwhile
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

// changed returns the time of the last change of a file's inode. A program cannot set that time.
func changed(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}
