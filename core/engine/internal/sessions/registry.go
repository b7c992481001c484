package sessions

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// Options is what New needs. All fields must be set. A Registry calls the functions without its own lock, except for Home.
type Options struct {
	Store executor.SessionStore
	Log   *slog.Logger
	Rules config.Sessions
	// Prepare bounds the start of an interpreter and an installation, Upload the writing of a file, Stop every other call of a
	// backend, and how long a backend may take to heed the end of a call.
	Prepare, Upload, Stop time.Duration
	// Embedded: no later life of the server reads the Store, so Release closes every Session.
	Embedded bool

	// Base is the context of everything that outlives a caller.
	Base context.Context
	// Stopping is closed when the engine begins to close.
	Stopping <-chan struct{}
	// Abandoned takes the calls of backends that were given up.
	Abandoned *calls.Abandoned
	// Spawn runs f as a task of the engine. It reports false if the engine has closed; then f does not run.
	Spawn func(f func()) bool
	// Full returns the error for a bound that is reached; what names the bound.
	Full func(what string) error
	// Refused counts a request that found no place.
	Refused func()
	// Internal logs err unless it is of another code than internal, and returns what a caller may see of it.
	Internal func(doing string, err error) error

	// Home returns the backend that is configured under a name now, or nil.
	Home func(name string) Home
}

// Home is a backend as the engine has it. A Session stays with its Home when another backend is configured under the name.
type Home interface {
	Sandboxes() executor.Backend
	// Describe returns what the backend last said of itself. Codes: unavailable (it is down or not healthy).
	Describe(ctx context.Context) (executor.Info, error)
	// Answered reports whether the backend has described itself since the server started.
	Answered() bool
	// Join notes that a Session is there, which keeps the backend from being stopped. Leave ends that. They may be called with the
	// Registry's lock.
	Join()
	Leave()
}

// Registry holds the Sessions of one engine. All methods are safe for concurrent use.
type Registry struct {
	options Options
	metrics *metrics
	// lookNow wakes Keep.
	lookNow chan struct{}

	mu sync.Mutex
	// draining: nothing new is opened.
	draining bool
	// open are the Sessions whose sandbox is there, or being made.
	open map[string]*Session
	// leftovers are the ids of ended Sessions whose sandbox may still be there, each with its backend.
	leftovers map[string]string
	// ended are the Sessions that have ended and whose records are kept for a while, in the order of their end.
	ended []endedSession
}

// New returns a Registry. Load and Keep make it work.
func New(o Options) *Registry {
	return &Registry{
		options: o, metrics: newMetrics(),
		lookNow: make(chan struct{}, 1), open: map[string]*Session{}, leftovers: map[string]string{},
	}
}

// idForm is "ctx-" and a UUIDv4.
var idForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^ctx-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
})

// ValidID reports whether id has the form of a Session's id.
func ValidID(id string) bool { return idForm().MatchString(id) }

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("ctx-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ErrUnknown is the error for an id that no Session has.
func ErrUnknown(id string) error {
	return executor.FieldErrorf(executor.NotFound, "session", "no session has the id %s", id)
}

// errUnknownName is the error for a text that is neither the id nor the name of one of list.
func errUnknownName(name string, list []executor.Session) error {
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	question := ""
	if near := executor.Nearest(name, names); near != "" {
		question = fmt.Sprintf(": did you mean %q?", near)
	}
	return executor.FieldErrorf(executor.NotFound, "session", "no session has the id or the name %q%s", name, question)
}

// ErrNotActive is the error for a request that the state of a Session does not allow.
func ErrNotActive(v executor.Session) error {
	message := "is " + string(v.Status)
	if v.Reason != "" {
		message += ": " + v.Reason
	}
	if v.Status == executor.SessionLost {
		message += "; restart it, or open another session"
	} else {
		message += "; open another session"
	}
	return executor.FieldErrorf(executor.Conflict, "session", "%s %s", v.ID, message)
}

func errStopping() error {
	return executor.Errorf(executor.Unavailable, "the server is stopping")
}

// Find returns the Session with this id and its view. It returns a nil Session where only the record is left. allowed reports
// whether the caller may see the Sessions of an owner; another owner's Session is not found.
func (r *Registry) Find(ctx context.Context, id string, allowed func(owner string) bool) (*Session, executor.Session, error) {
	r.mu.Lock()
	if s := r.open[id]; s != nil && s.rec.Status != executor.SessionUnknown && allowed(s.Owner) {
		defer r.mu.Unlock()
		return s, s.viewLocked(), nil
	}
	r.mu.Unlock()
	rec, err := r.options.Store.GetSessionRecord(ctx, id)
	switch {
	case executor.CodeOf(err) == executor.NotFound:
		return nil, executor.Session{}, ErrUnknown(id)
	case err != nil:
		return nil, executor.Session{}, r.options.Internal("get a session", err)
	case !allowed(rec.Owner):
		return nil, executor.Session{}, ErrUnknown(id)
	}
	return nil, brief(rec.Session), nil
}

// FindNamed is Find for the Session of an owner that has a name. Of Sessions with the same name only one may be open; where all are
// closed it returns the last one. Codes: not_found, conflict (several are open).
func (r *Registry) FindNamed(ctx context.Context, name, owner string) (*Session, executor.Session, error) {
	list, err := r.List(ctx, owner)
	if err != nil {
		return nil, executor.Session{}, err
	}
	var found, ids []string
	for _, s := range list {
		if s.Name != name || name == "" {
			continue
		}
		ids = append(ids, s.ID)
		if s.Status != executor.SessionClosed {
			found = append(found, s.ID)
		}
	}
	switch {
	case len(ids) == 0:
		return nil, executor.Session{}, errUnknownName(name, list)
	case len(found) > 1:
		shown := strings.Join(found[:min(len(found), 3)], ", ")
		return nil, executor.Session{}, executor.FieldErrorf(executor.Conflict, "session", "%d sessions have the name %q: use the id of one (%s)", len(found), name, shown)
	case len(found) == 1:
		ids = found
	}
	return r.Find(ctx, ids[0], func(string) bool { return true })
}

// List returns the views of an owner's Sessions, newest first; owner "" means all.
func (r *Registry) List(ctx context.Context, owner string) ([]executor.Session, error) {
	recs, err := r.options.Store.ListSessionRecords(ctx, owner)
	if err != nil {
		return nil, r.options.Internal("list sessions", err)
	}
	list := make([]executor.Session, 0, len(recs))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range recs {
		view := brief(rec.Session)
		if s := r.open[rec.ID]; s != nil && s.rec.Status != executor.SessionUnknown {
			view = s.viewLocked()
		}
		list = append(list, view)
	}
	return list, nil
}

// Load takes over the Sessions of an earlier life of the server. Whether their sandboxes are there is found out by Keep, or at
// their first use.
func (r *Registry) Load(ctx context.Context) error {
	recs, err := r.options.Store.ListSessionRecords(ctx, "")
	if err != nil {
		return r.options.Internal("read the sessions", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range recs {
		if rec.Status == executor.SessionClosed || !rec.EndedAt.IsZero() {
			r.addEndedLocked(rec.ID, rec.EndedAt)
			if len(rec.Handle) > 0 {
				r.leftovers[rec.ID] = rec.Backend
			}
			continue
		}
		s := newSession(r, rec, r.options.Home(rec.Backend))
		s.saved = rec.LastUsed
		r.open[rec.ID] = s
	}
	return nil
}

// SetRules replaces the bounds. Open Sessions keep their own times.
func (r *Registry) SetRules(rules config.Sessions) {
	r.mu.Lock()
	r.options.Rules = rules
	r.mu.Unlock()
	r.Look() // the time that closed Sessions are kept may have changed
}

// Drain makes the Registry refuse what is new.
func (r *Registry) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Release ends, when the engine closes, the Sessions that would not outlive it: those without a handle, or all of them where no
// later life of the server reads the Store. The others stay for the next life, and so do those of an earlier life whose backend
// has not answered in this one.
func (r *Registry) Release() {
	var wg sync.WaitGroup
	for _, s := range r.filter(func(*Session) bool { return true }) {
		wg.Go(func() { r.release(s) })
	}
	wg.Wait()
}

func (r *Registry) release(s *Session) {
	r.mu.Lock()
	unknown, lasts := !s.verified, len(s.rec.Handle) > 0
	unsaved := s.closed == nil && s.rec.LastUsed.After(s.saved)
	r.mu.Unlock()
	if s.home != nil && !r.options.Embedded && (lasts || unknown && !s.home.Answered()) {
		if unsaved {
			s.save()
		}
		return
	}
	s.beginClose("the server stopped")
	<-s.closed
}

// filter returns the open Sessions that keep keeps, by age.
func (r *Registry) filter(keep func(*Session) bool) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*Session
	for _, s := range r.open {
		if s.rec.Status != executor.SessionUnknown && keep(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Session) int { return a.rec.CreatedAt.Compare(b.rec.CreatedAt) })
	return list
}
