package watch

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing may change before the file is taken as written. maxWait bounds the wait.
	quiet   = 250 * time.Millisecond
	maxWait = 5 * time.Second
	// retry is the time to the next attempt where the folders cannot be watched.
	retry = 10 * time.Second
	// maxLinks bounds the links on the way to the file, as the kernel does.
	maxLinks = 40
)

// File watches one file until Close.
type File struct {
	path    string
	log     *slog.Logger
	changes chan struct{}
	stop    chan struct{}
	done    chan struct{}
}

// New watches the file at path, which need not exist. An error means that this system cannot watch.
func New(path string, log *slog.Logger) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, log: log, changes: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	names, watcher, err := f.watch()
	if err != nil {
		return nil, err
	}
	go f.follow(names, watcher)
	return f, nil
}

// Changes receives a value after the file may have changed. One value can stand for several changes.
func (f *File) Changes() <-chan struct{} { return f.changes }

// Close ends the watch.
func (f *File) Close() {
	close(f.stop)
	<-f.done
}

// watch begins to watch the folders on the way to the file, and returns the names in them that matter.
func (f *File) watch() (names map[string]bool, w *fsnotify.Watcher, err error) {
	if w, err = fsnotify.NewWatcher(); err != nil {
		return nil, nil, err
	}
	// A link that was changed before its folder was watched leads another way.
	for names = way(f.path); ; {
		if err = add(w, names); err != nil {
			_ = w.Close() // nothing was written
			return nil, nil, err
		}
		now := way(f.path)
		if maps.Equal(names, now) {
			return names, w, nil
		}
		names = now
	}
}

// add watches the folders of names. A folder that is missing or closed to this user is not watched: its parent shows when it comes. It is
// an error if none can be watched.
func add(w *fsnotify.Watcher, names map[string]bool) (err error) {
	watched := false
	// The parents come first, so that a folder that is replaced meanwhile is seen.
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if addErr := w.Add(filepath.Dir(name)); addErr != nil {
			err = addErr
		} else {
			watched = true
		}
	}
	if watched {
		return nil
	}
	return err
}

// way returns every name that decides which file is at path: the folders, the links, the targets of the links, and the file. In each
// name the folder is free of links.
func way(path string) map[string]bool {
	names := map[string]bool{}
	at, rest, links := "/", strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		names[next] = true
		target, err := os.Readlink(next)
		if err != nil {
			at = next // no link, or not there
			continue
		}
		if links++; links > maxLinks {
			return names
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return names
}

// follow passes on changes until Close.
func (f *File) follow(names map[string]bool, w *fsnotify.Watcher) {
	defer close(f.done)
	defer func() { _ = w.Close() }()
	settle := time.NewTimer(0)
	settle.Stop()
	var since time.Time // of the first change that was not passed on; zero: there is none
	changed := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		settle.Reset(max(0, min(quiet, time.Until(since.Add(maxWait)))))
	}
	for {
		select {
		case <-f.stop:
			return
		case event := <-w.Events:
			if names[event.Name] {
				changed()
			}
		case err := <-w.Errors:
			f.log.Warn("watch the configuration", "error", err) // events may be lost
			changed()
		case <-settle.C:
			next, watcher, err := f.watch()
			if err != nil {
				f.log.Warn("watch the configuration", "error", err, "again_in", retry)
				settle.Reset(retry)
				continue
			}
			_ = w.Close() // nothing was written
			names, w, since = next, watcher, time.Time{}
			select {
			case f.changes <- struct{}{}:
			default:
			}
		}
	}
}
