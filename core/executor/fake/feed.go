package fake

import (
	"errors"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// feedWindow bounds how much output a program may be ahead of its reader, like the buffer of a pipe.
const feedWindow = 1 << 20

var (
	errFeedEnd = errors.New("end of the feed")
	errGone    = errors.New("the reader has gone")
)

// feed is a bounded queue between a program and its follower. Items that were not taken stay in the queue for another follower.
type feed struct {
	mu      sync.Mutex
	items   []executor.Body
	bytes   int
	ended   bool
	changed chan struct{} // closed and replaced at every change
}

func newFeed() *feed { return &feed{changed: make(chan struct{})} }

// wake wakes all waiters. The caller holds mu.
func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// put adds body when there is room, and reports whether it did. It returns when done is closed or the feed has ended.
func (f *feed) put(done <-chan struct{}, body executor.Body) bool {
	for {
		f.mu.Lock()
		if f.ended {
			f.mu.Unlock()
			return false
		}
		if f.bytes < feedWindow {
			f.items = append(f.items, body)
			f.bytes += sizeOf(body)
			f.wake()
			f.mu.Unlock()
			return true
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

// next returns the oldest item without removing it. It returns an error when the feed has ended, or gone or left is closed.
func (f *feed) next(gone, left <-chan struct{}) (executor.Body, error) {
	for {
		select {
		case <-gone:
			return nil, errGone
		case <-left:
			return nil, errGone
		default:
		}
		f.mu.Lock()
		if len(f.items) > 0 {
			body := f.items[0]
			f.mu.Unlock()
			return body, nil
		}
		ended, changed := f.ended, f.changed
		f.mu.Unlock()
		if ended {
			return nil, errFeedEnd
		}
		select {
		case <-changed:
		case <-gone:
			return nil, errGone
		case <-left:
			return nil, errGone
		}
	}
}

// took removes the item that next has returned.
func (f *feed) took() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes -= sizeOf(f.items[0])
	f.items = f.items[1:]
	f.wake()
}

// end marks the end of the feed.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.wake()
}

// resume drops the output before the offsets, which the follower already has.
func (f *feed) resume(from map[executor.Stream]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var items []executor.Body
	f.bytes = 0
	for _, body := range f.items {
		if out, ok := body.(executor.Output); ok {
			skip := min(max(from[out.Stream]-out.Offset, 0), int64(len(out.Data)))
			out.Offset, out.Data = out.Offset+skip, out.Data[skip:]
			if len(out.Data) == 0 {
				continue
			}
			body = out
		}
		items = append(items, body)
		f.bytes += sizeOf(body)
	}
	f.items = items
	f.wake()
}

func sizeOf(body executor.Body) int {
	switch b := body.(type) {
	case executor.Output:
		return len(b.Data)
	case executor.Display:
		bytes := 0
		for _, data := range b.Data {
			bytes += len(data)
		}
		return bytes
	}
	return 64
}
