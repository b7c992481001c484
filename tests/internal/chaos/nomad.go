package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/tests/internal/nomadsite"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// Nomad says how often each part is killed (-9) under load.
type Nomad struct {
	// Client, Server and Core are those of the mode job: an agent that runs tasks, the agent that is the server, and ours.
	Client, Server, Core int
	// Worker and WorkersCore are those of the mode workers: a worker, and our server.
	Worker, WorkersCore int
}

// Run runs all of it on a site, and calls say after each part.
func (n Nomad) Run(site *nomadsite.Site, say func(part string, r Report)) error {
	if n.Client+n.Server+n.Core > 0 {
		if err := n.jobs(site, say); err != nil {
			return err
		}
	}
	if n.Worker+n.WorkersCore > 0 {
		return n.workers(site, say)
	}
	return nil
}

// jobs has no part after whose death an execution may be lost.
func (n Nomad) jobs(site *nomadsite.Site, say func(string, Report)) error {
	s, err := site.Jobs("jobs")
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return err
	}
	defer func() { s.Stop() }()
	clients := site.Cluster.Clients
	part := storm{site: site, url: s.URL, clients: 3, between: 2}
	for _, p := range []struct {
		name  string
		times int
		kill  func(n int) error
	}{
		{"job: Nomad's client", n.Client, func(n int) error { clients[n%len(clients)].Kill(); return clients[n%len(clients)].Start() }},
		{"job: Nomad's server", n.Server, func(int) error { site.Cluster.Server.Kill(); return site.Cluster.Server.Start() }},
		{"job: our server", n.Core, func(int) error { s.Kill(); return s.Start() }},
	} {
		part.name, part.times, part.kill = p.name, p.times, p.kill
		if err := part.run(say); err != nil {
			return err
		}
	}
	twice, err := site.Repeated()
	if len(twice) > 0 {
		err = fmt.Errorf("started more than once: %v", twice)
	}
	return err
}

// workers may lose what runs on a worker that is killed, and what runs when our server is killed, because uv cannot attach.
func (n Nomad) workers(site *nomadsite.Site, say func(string, Report)) error {
	if err := site.StartWorkers(2, 4); err != nil {
		return err
	}
	s, err := site.Workers("workers")
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return err
	}
	defer func() { s.Stop() }()
	if err := nomadsite.Usable(s, 2); err != nil {
		return err
	}
	part := storm{site: site, url: s.URL, clients: 6, between: 4, lossy: true}
	part.name, part.times, part.kill = "workers: a worker", n.Worker, func(n int) error {
		if err := site.KillWorker(n); err != nil {
			return err
		}
		return nomadsite.Usable(s, 2)
	}
	if err := part.run(say); err != nil {
		return err
	}
	part.name, part.times, part.kill = "workers: our server", n.WorkersCore, func(int) error { s.Kill(); return s.Start() }
	return part.run(say)
}

// storm is a load on a server while something is killed again and again.
type storm struct {
	name string
	site *nomadsite.Site
	url  string
	// clients submit executions, one after another each.
	clients int
	// times is how often kill is called. between is the number of executions that end between two kills.
	times   int
	between int64
	// kill kills something, and returns when it is back.
	kill func(n int) error
	// lossy: executions may be lost.
	lossy bool
}

// gale is one run of a storm.
type gale struct {
	storm
	load
	// ends has the answer about each execution when it was first seen to have ended.
	ends map[string]json.RawMessage
}

// largeInput is more than is sent in a job of Nomad itself.
const largeInput = 48 << 10

// numbers makes the idempotency keys of all storms different.
var numbers atomic.Int64

// run runs the load until all kills are done, and checks each execution once more.
func (s storm) run(say func(string, Report)) error {
	if s.times == 0 {
		return nil
	}
	g := &gale{storm: s, load: load{server: &serve.Server{URL: s.url}}, ends: map[string]json.RawMessage{}}
	var wg sync.WaitGroup
	for range s.clients {
		wg.Go(func() {
			for !g.enough.Load() {
				g.fail(g.one(numbers.Add(1)))
			}
		})
	}
	away, err := g.blow()
	g.fail(err)
	g.enough.Store(true)
	wg.Wait()
	g.fail(g.still())
	if err := errors.Join(g.failed...); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	say(s.name, Report{Kills: s.times, Succeeded: g.succeeded.Load(), Lost: g.lost.Load(), Refused: g.refused.Load(), Away: away})
	return nil
}

// blow kills, and returns the longest time from a kill to the next success.
func (g *gale) blow() (longest time.Duration, err error) {
	for n := range g.times {
		before := g.succeeded.Load()
		if err := serve.Await("executions end between two kills", func() (bool, error) {
			return g.succeeded.Load() >= before+g.between || g.enough.Load(), nil
		}); err != nil || g.enough.Load() {
			return longest, err
		}
		time.Sleep(rand.N(time.Second)) //nolint:gosec // no secret; each kill meets another moment of the executions
		before = g.succeeded.Load()
		killed := time.Now()
		if err := g.kill(n); err != nil {
			return longest, err
		}
		if err := serve.Await("an execution succeeds after a kill", func() (bool, error) {
			return g.succeeded.Load() > before || g.enough.Load(), nil
		}); err != nil {
			return longest, err
		}
		longest = max(longest, time.Since(killed))
	}
	return longest, nil
}

// ask makes a request until it is answered. An answer that is not 5xx or 429 counts.
func (g *gale) ask(method, path, body string, out any) error {
	var last error
	err := serve.Await(method+" "+path+" is answered", func() (bool, error) {
		last = g.server.JSON(method, path, body, out)
		if last == nil {
			return true, nil
		}
		if strings.Contains(last.Error(), path+": 4") && !strings.Contains(last.Error(), path+": 429") {
			return false, last
		}
		g.refused.Add(1)
		return false, nil
	})
	return errors.Join(err, last)
}

// one submits an execution, waits for its end, and checks it.
func (g *gale) one(n int64) error {
	code := fmt.Sprintf("import sys, time\nprint(%d, flush=True)\ntime.sleep(%.2f)\nprint(len(sys.stdin.read()))\n", n, rand.Float64()) //nolint:gosec // no secret
	stdin := ""
	if n%3 == 0 {
		stdin = strings.Repeat("x", largeInput)
	}
	var x execution
	// With the key, a request whose answer was lost makes no second execution.
	if err := g.ask(http.MethodPost, "/api/v1/exec/async", fmt.Sprintf(`{"code":%q,"stdin":%q,"idempotency_key":"chaos-%d"}`, code, stdin, n), &x); err != nil {
		return err
	}
	var raw json.RawMessage
	if err := serve.Await(x.ID+" ends", func() (bool, error) {
		if err := g.ask(http.MethodGet, "/api/v1/executions/"+x.ID, "", &raw); err != nil {
			return false, err
		}
		x = execution{}
		err := json.Unmarshal(raw, &x)
		return x.Status != "queued" && x.Status != "running", err
	}); err != nil {
		return fmt.Errorf("%w: %s", err, raw)
	}
	g.mu.Lock()
	g.ends[x.ID] = raw
	g.mu.Unlock()
	whole := fmt.Sprintf("%d\n%d\n", n, len(stdin))
	switch {
	case x.Status == "succeeded" && x.Stdout == whole && x.Code != nil && *x.Code == 0:
		g.succeeded.Add(1)
	case g.lossy && x.Status == "lost" && strings.HasPrefix(whole, x.Stdout) && x.Code == nil && x.Error.Code == "unavailable":
		g.lost.Add(1)
	default:
		return fmt.Errorf("%s has another end than allowed: %s", x.ID, raw)
	}
	return nil
}

// still checks that no end has changed, that each log has one end, that the list has every execution, and that nothing is left.
func (g *gale) still() error {
	ids := slices.Sorted(maps.Keys(g.ends))
	for _, id := range ids {
		var now json.RawMessage
		if err := g.ask(http.MethodGet, "/api/v1/executions/"+id, "", &now); err != nil {
			return err
		}
		if string(now) != string(g.ends[id]) {
			return fmt.Errorf("%s has changed after its end:\n%s\n%s", id, g.ends[id], now)
		}
		if err := g.oneEnd(id); err != nil {
			return err
		}
	}
	if err := g.listed(ids); err != nil {
		return err
	}
	var left []string
	err := serve.Await("nothing is left", func() (_ bool, err error) {
		left, err = g.site.Leftovers()
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("%w: %v", err, left)
	}
	return nil
}

// oneEnd checks that the log of an execution has one end, which is its last event.
func (g *gale) oneEnd(id string) error {
	resp, err := http.Get(g.server.URL + "/api/v1/executions/" + id + "/events") //nolint:gosec // our own loopback address
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var kinds []string
	for line := range strings.Lines(string(raw)) {
		if kind, ok := strings.CutPrefix(line, "event: "); ok {
			kinds = append(kinds, strings.TrimSpace(kind))
		}
	}
	if slices.Index(kinds, "finished") != len(kinds)-1 || len(kinds) == 0 {
		return fmt.Errorf("the events of %s are %v", id, kinds)
	}
	return nil
}

// listed checks that the list has all these executions, and none that has not ended.
func (g *gale) listed(ids []string) error {
	there := map[string]string{}
	for after := ""; ; {
		var page struct {
			Executions []execution `json:"executions"`
			Next       string      `json:"next"`
		}
		if err := g.ask(http.MethodGet, "/api/v1/executions?limit=500"+after, "", &page); err != nil {
			return err
		}
		for _, x := range page.Executions {
			there[x.ID] = x.Status
			if x.Status == "queued" || x.Status == "running" {
				return fmt.Errorf("%s is still %s", x.ID, x.Status)
			}
		}
		if page.Next == "" {
			break
		}
		after = "&after=" + page.Next
	}
	for _, id := range ids {
		if there[id] == "" {
			return fmt.Errorf("%s is not in the list", id)
		}
	}
	return nil
}
