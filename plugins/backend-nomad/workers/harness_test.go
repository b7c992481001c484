package workers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

// board is a registry that the test writes.
type board struct {
	mu      sync.Mutex
	all     []registration
	index   uint64
	err     error
	asked   int
	changed chan struct{}
}

func newBoard() *board { return &board{index: 1, changed: make(chan struct{})} }

func (b *board) list(ctx context.Context, index uint64) ([]registration, uint64, error) {
	for {
		b.mu.Lock()
		all, now, err, changed := slices.Clone(b.all), b.index, b.err, b.changed
		b.asked++
		b.mu.Unlock()
		if err != nil || index != now {
			return all, now, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// write changes the registrations.
func (b *board) write(change func(all []registration) []registration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = change(b.all)
	b.index++
	close(b.changed)
	b.changed = make(chan struct{})
}

// fail makes the registry fail, or work again with nil.
func (b *board) fail(err error) {
	b.write(func(all []registration) []registration { b.err = err; return all })
}

func (b *board) list1(r registration) {
	b.write(func(all []registration) []registration {
		return append(slices.DeleteFunc(all, func(o registration) bool { return o.ID == r.ID }), r)
	})
}

func (b *board) unlist(id string) {
	b.write(func(all []registration) []registration {
		return slices.DeleteFunc(all, func(o registration) bool { return o.ID == id })
	})
}

// memory is a network of this process: listeners by their address.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

// listen returns a listener and its address, which no other one has had.
func (m *memory) listen() (*bufconn.Listener, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	address := fmt.Sprintf("memory:%d", len(m.listeners)+1)
	m.listeners[address] = bufconn.Listen(1 << 20)
	return m.listeners[address], address
}

func (m *memory) dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.DialContext(ctx)
}

// site is a test's cluster in memory: an authority, a registry, and workers.
type site struct {
	t     *testing.T
	ca    *workertest.Authority
	board *board
	net   *memory
	n     int
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, ca: workertest.NewAuthority(t), board: newBoard(), net: &memory{listeners: map[string]*bufconn.Listener{}}}
}

// inSite runs a test with a site, in virtual time.
func inSite(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newSite(t)) })
}

// node is one worker of a site.
type node struct {
	registration
	fake   *fake.Backend
	server *worker.Server
	// kill ends it without a word.
	kill func()
}

// capable returns capabilities with Sessions; change may change more.
func capable(change ...func(*executor.Capabilities)) *executor.Capabilities {
	can := fake.DefaultCapabilities()
	can.Sessions = true
	for _, f := range change {
		f(&can)
	}
	return &can
}

func attaches(can *executor.Capabilities) { can.Attach = true }

// worker starts a worker with that many slots and registers it.
func (s *site) worker(slots int, o fake.Options) *node {
	s.t.Helper()
	if o.Capabilities == nil {
		o.Capabilities = capable()
	}
	s.n++
	n := s.serve(fmt.Sprintf("w%d", s.n), slots, fake.New(o))
	s.board.list1(n.registration)
	return n
}

// serve serves b as the worker id.
func (s *site) serve(id string, slots int, b *fake.Backend) *node {
	s.t.Helper()
	server, err := worker.New(worker.Options{Backend: b, TLS: s.ca.Issue(worker.WorkerName), Slots: slots})
	if err != nil {
		s.t.Fatal(err)
	}
	l, address := s.net.listen()
	cut := &cuttable{Listener: l}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(cut)
	}()
	n := &node{registration: registration{ID: id, Address: address}, fake: b, server: server}
	n.kill = sync.OnceFunc(func() {
		cut.cut()
		server.Close()
		<-served
	})
	s.t.Cleanup(func() {
		n.kill()
		for _, id := range b.Running() { // programs that outlive their worker
			_ = b.Remove(context.Background(), id)
		}
	})
	return n
}

// cuttable is a listener whose connections can be cut at once.
type cuttable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cuttable) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cuttable) cut() {
	_ = c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// pool returns the backend of one server.
func (s *site) pool(change ...func(*Config)) *Pool { return s.poolOf("one", change...) }

func (s *site) poolOf(instance string, change ...func(*Config)) *Pool {
	s.t.Helper()
	c := Default()
	c.TLS = s.ca.Issue(worker.ServerName)
	c.TLS.PeerName = worker.WorkerName
	for _, f := range change {
		f(&c)
	}
	p, err := newPool(s.t.Context(), c, plugin.Configure{Name: "nomad", Instance: instance}, s.board, s.net.dial)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return p
}

func info(t testing.TB, p *Pool) executor.Info {
	t.Helper()
	i, err := p.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

var jobs atomic.Int64

func job(code string) executor.Job {
	return executor.Job{
		ID: fmt.Sprintf("exe_%d", jobs.Add(1)), Owner: "o", Attempt: 1, Spec: executor.Spec{Code: code}, Limits: executor.Limits{
			Timeout: time.Hour, MemoryBytes: 1 << 30, DiskBytes: 1 << 30, CPUShares: 1024, PIDs: 64, OutputBytes: 1 << 20, KillGrace: time.Second,
		},
	}
}

func inSession(id, code string) executor.Job {
	j := job(code)
	j.Spec.Session = id
	return j
}

// call is a Run or an Attach under way.
type call struct {
	*workertest.Journal
	job    executor.Job
	cancel context.CancelCauseFunc
	done   chan struct{}
	result executor.Result
	err    error
}

func begin(t *testing.T, j executor.Job, run func(ctx context.Context, sink executor.Sink) (executor.Result, error)) *call {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &call{Journal: workertest.NewJournal(), job: j, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.result, c.err = run(ctx, c.Journal)
	}()
	t.Cleanup(func() {
		cancel(errors.New("the test is over"))
		<-c.done
	})
	return c
}

func start(t *testing.T, b executor.Backend, j executor.Job) *call {
	t.Helper()
	return begin(t, j, func(ctx context.Context, sink executor.Sink) (executor.Result, error) { return b.Run(ctx, j, sink) })
}

// running is start for a program that has started when it returns.
func running(t *testing.T, b executor.Backend, j executor.Job) *call {
	t.Helper()
	c := start(t, b, j)
	select {
	case <-c.Started:
	case <-c.done:
		t.Fatalf("%s did not start: %+v, %v", j.ID, c.result, c.err)
	}
	return c
}

// succeeds waits for the end of c.
func (c *call) succeeds(t *testing.T) {
	t.Helper()
	<-c.done
	if c.err != nil || c.result.Status != executor.StatusSucceeded {
		t.Errorf("%s: %+v, %v", c.job.ID, c.result, c.err)
	}
}

// runs runs code to its end.
func runs(t *testing.T, b executor.Backend, code string) *call {
	t.Helper()
	c := start(t, b, job(code))
	c.succeeds(t)
	return c
}

func pluginConfigure() plugin.Configure { return plugin.Configure{Name: "nomad", Instance: "one"} }
