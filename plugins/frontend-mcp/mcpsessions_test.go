package mcpfrontend

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// opened are sessions that record which of them have ended.
type opened struct {
	*mcpSessions
	t   *testing.T
	end []string
}

func newOpened(t *testing.T, c HTTP) *opened {
	o := &opened{t: t}
	o.mcpSessions = newMCPSessions(c, func(id string) { o.end = append(o.end, id) })
	return o
}

func (o *opened) add(owner string) string {
	o.t.Helper()
	id, err := o.begin(owner)
	if err != nil {
		o.t.Fatal(err)
	}
	time.Sleep(time.Second) // in a bubble: each was used at another time
	return id
}

func (o *opened) full(owner, says string) {
	o.t.Helper()
	if id, err := o.begin(owner); id != "" || executor.CodeOf(err) != executor.Exhausted || !strings.Contains(err.Error(), says) {
		o.t.Errorf("%s got %q, %v", owner, id, err)
	}
}

func (o *opened) ended(want ...string) {
	o.t.Helper()
	if !slices.Equal(o.end, want) {
		o.t.Errorf("ended %q, want %q", o.end, want)
	}
}

func TestAnOwnersSessionsMakeRoomForItsOwnOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpened(t, HTTP{MaxSessions: 4, MaxSessionsPerOwner: 3, SessionIdleSeconds: 60})
		a1, a2, a3 := o.add("ann"), o.add("ann"), o.add("ann")
		b1 := o.add("bob") // now there are four
		o.ended()
		if _, err := (&ownedSessions{all: o.mcpSessions, owner: "ann"}).Validate(a1); err != nil {
			t.Fatal(err)
		}
		o.full("eve", "max_sessions)") // nobody's session makes room for her
		o.ended()
		a4 := o.add("ann") // a2 was used least recently
		o.ended(a2)
		b2 := o.add("bob") // all of them are taken
		o.ended(a2, b1)
		release3, release1, release4 := o.hold(a3), o.hold(a1), o.hold(a4)
		o.full("ann", "max_sessions_per_owner")
		release1()
		o.hold(a1)()
		a5 := o.add("ann")
		o.ended(a2, b1, a1)
		release3()
		release4()
		for _, id := range []string{a3, a4, a5, b2} {
			if o.open[id] == nil {
				t.Errorf("%s has ended", id)
			}
		}
	})
}

func TestABusySessionDoesNotExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpened(t, HTTP{MaxSessions: 4, SessionIdleSeconds: 60})
		idle, busy := o.add("ann"), o.add("ann")
		first, second := o.hold(busy), o.hold(busy)
		time.Sleep(time.Hour)
		// mcp-go drops its own state of an idle session even while a call runs.
		if notAllowed, err := o.ResolveSessionIdManager(nil).Terminate(busy); notAllowed || err != nil || o.open[busy] == nil {
			t.Errorf("mcp-go ends a busy session: %t, %v", notAllowed, err)
		}
		o.ended()
		if list := o.expired(time.Now()); !slices.Equal(list, []string{idle}) {
			t.Errorf("expired %q, want the idle session", list)
		}
		first()
		time.Sleep(time.Hour)
		if list := o.expired(time.Now()); len(list) != 0 {
			t.Errorf("expired %q while a call runs", list)
		}
		second() // it was in use until now
		if list := o.expired(time.Now().Add(60 * time.Second)); len(list) != 0 {
			t.Errorf("expired %q, which was used 60 s ago", list)
		}
		if list := o.expired(time.Now().Add(61 * time.Second)); !slices.Equal(list, []string{busy}) {
			t.Errorf("expired %q", list)
		}
	})
}

func TestTheBoundOfAnOwner(t *testing.T) {
	t.Parallel()
	tokens := []auth.Token{{Owner: "ann"}}
	for want, c := range map[int]HTTP{
		1000: {MaxSessions: 1000},
		500:  {MaxSessions: 1000, Tokens: tokens},
		7:    {MaxSessions: 1000, MaxSessionsPerOwner: 7, Tokens: tokens},
		1:    {MaxSessions: 1, Tokens: tokens},
	} {
		if got := newMCPSessions(c, nil).perOwner; got != want {
			t.Errorf("%+v: %d, want %d", c, got, want)
		}
	}
}

func tokenOf(owner string) auth.Token {
	sum := sha256.Sum256([]byte(owner + "'s"))
	return auth.Token{Owner: owner, SHA256: hex.EncodeToString(sum[:])}
}

// hang calls a program that does not end, and returns a function that waits for the answer.
func (c client) hang() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = c.post(c.t.Context(), map[string]any{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": map[string]any{
			"name": "run_script_with_dependencies", "arguments": map[string]any{"script_content": "hang", "python_version": "3.12"},
		}}, nil)
	}()
	return func() { <-done }
}

// ping returns the HTTP status of a ping in a session.
func (c client) ping(session string) int {
	c.t.Helper()
	c.session = session
	status, _, err := c.post(c.t.Context(), map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return status
}

// An owner at its bound ends its own sessions only, and no session with a running call.
func TestAnOwnerCannotEndAnothersSessions(t *testing.T) {
	svc := newService(t, fake.Options{})
	ann := serveTest(t, svc, func(c *Config) {
		c.HTTP.MaxSessions, c.HTTP.Tokens = 4, []auth.Token{tokenOf("ann"), tokenOf("bob")}
	})
	bob := *ann
	ann.token, bob.token = "ann's", "bob's"
	bob.initialize()
	kept := bob.session
	var anns []string
	for range 5 {
		ann.initialize()
		anns = append(anns, ann.session)
	}
	for i, session := range anns {
		want := http.StatusNotFound
		if i >= 3 { // two, half of four, are left
			want = http.StatusOK
		}
		if got := ann.ping(session); got != want {
			t.Errorf("session %d of ann: %d, want %d", i, got, want)
		}
		if got := bob.ping(session); got != http.StatusNotFound {
			t.Errorf("session %d of ann answers bob: %d", i, got)
		}
	}
	if got := bob.ping(kept); got != http.StatusOK {
		t.Errorf("bob's session: %d", got)
	}
	busy := *ann
	busy.session = anns[3]
	wait := busy.hang()
	asAnn := executor.WithPrincipal(t.Context(), executor.Principal{Owner: "ann", Scopes: []executor.Scope{executor.ScopeExec, executor.ScopeRead}})
	x := awaitOneOf(asAnn, t, svc, executor.StatusRunning)
	for range 3 {
		ann.initialize()
	}
	if got := ann.ping(anns[3]); got != http.StatusOK {
		t.Errorf("the busy session was ended: %d", got)
	}
	if got := ann.ping(anns[4]); got != http.StatusNotFound {
		t.Errorf("the idle session was kept: %d", got)
	}
	if _, err := svc.Cancel(asAnn, x.ID); err != nil {
		t.Fatal(err)
	}
	wait()
}

func TestAFullServerRefusesToInitialize(t *testing.T) {
	svc := newService(t, fake.Options{})
	c := serveTest(t, svc, func(c *Config) { c.HTTP.MaxSessions = 1 })
	wait := c.hang()
	x := awaitOne(t, svc, executor.StatusRunning)
	next := *c
	next.session = ""
	status, messages, err := next.post(t.Context(), map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"},
	}}, nil)
	if err != nil || status != http.StatusTooManyRequests || !strings.Contains(fmt.Sprint(messages), "max_sessions") || next.session != "" || next.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %v %v", status, messages, next.header, err)
	}
	if got := c.ping(c.session); got != http.StatusOK {
		t.Errorf("the busy session: %d", got)
	}
	if _, err := svc.Cancel(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	wait()
	next.initialize()
	if got := c.ping(c.session); got != http.StatusNotFound {
		t.Errorf("the idle session that made room: %d", got)
	}
}
