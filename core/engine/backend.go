package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

// backend is a configured Backend and its last Info. Its lock is the last one: whoever holds it takes no other.
type backend struct {
	executor.Backend
	engine *Engine
	name   string
	// key names it in the queue, where a former backend of the same name may be beside it.
	key string
	// idle is closed when the backend is retired and nothing is on it any more.
	idle chan struct{}

	mu       sync.Mutex
	info     executor.Info
	err      error
	at       time.Time
	fetching chan struct{}
	// generation is that of the plugin process that answered last.
	generation int
	// attach is Capabilities.Attach of the last answer. seen: it has answered since the server started.
	attach, seen bool
	// down is when it stopped to answer; zero: it has answered last. waiting counts the requests that wait for its answer.
	down    time.Time
	waiting int
	// users counts the Executions, Sessions and requests on it.
	users int
	// until is when the drain ends; zero: it is not retired.
	until time.Time
}

var _ sessions.Home = (*backend)(nil)

func (e *Engine) newBackend(name string, b executor.Backend) *backend {
	return &backend{Backend: b, engine: e, name: name, key: fmt.Sprintf("%s#%d", name, e.backendCount.Add(1)), idle: make(chan struct{})}
}

// enter is Join for a new request. It reports false if the backend is retired.
func (b *backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.IsZero() {
		return false
	}
	b.users++
	return true
}

// Join implements sessions.Home. The caller has a user of b already, or knows that b is not retired.
func (b *backend) Join() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
}

// Leave implements sessions.Home.
func (b *backend) Leave() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	b.settleLocked()
}

// retire lets nobody enter any more. The drain ends at until.
func (b *backend) retire(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
	b.settleLocked()
}

func (b *backend) settleLocked() {
	if b.users > 0 || b.until.IsZero() {
		return
	}
	select {
	case <-b.idle:
	default:
		close(b.idle)
	}
}

// keyOr returns b's key; name if b is nil.
func (b *backend) keyOr(name string) string {
	if b == nil {
		return name
	}
	return b.key
}

// leftover describes what is on a retired backend, for people.
func (b *backend) leftover() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("draining until %s: %d executions and sessions are left", b.until.UTC().Format(time.RFC3339), b.users)
}

// Sandboxes implements sessions.Home.
func (b *backend) Sandboxes() executor.Backend { return b.Backend }

// Describe implements sessions.Home.
func (b *backend) Describe(ctx context.Context) (executor.Info, error) { return b.engine.info(ctx, b) }

// Answered implements sessions.Home. A nil backend has not answered.
func (b *backend) Answered() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

// Keeps reports whether the backend keeps what it ran until it is removed, also when its plugin dies. A nil backend, which is not
// configured any more, keeps nothing.
func (b *backend) Keeps() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attach
}

// forget drops the last Info, because the backend has just failed.
func (b *backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
}
