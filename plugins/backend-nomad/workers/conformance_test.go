package workers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// ofAttach are the rules that depend on Attach.
var ofAttach = []string{
	"BE-01", "BE-40", "BE-42", "BE-43", "BE-80", "BE-81", "BE-82", "BE-85", "BE-90", "BE-91", "BE-92", "BE-93",
	"SE-01", "SE-02", "SE-43", "SE-44", "SE-45", "SE-47", "EV-01", "EV-02", "EV-03", "EV-05", "EV-06", "EV-07",
}

// beside returns the Pool of a second server of the same installation, which sends id to the worker that runs it already: it has heard of
// the workers before id began, and has used the other one more.
func (s *site) beside(nodes [2]*node, id string) *Pool {
	p := s.pool()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range nodes {
		m := p.members[n.ID]
		m.others, m.used = 0, 0
		if !slices.Contains(n.fake.Running(), id) {
			m.used = 1
		}
	}
	return p
}

// TestConformance holds the whole way to the law: pool, mutual TLS, two workers around the fake, in virtual time. When the backend dies in the suite,
// the server and both workers die. There is a wire on the way already, so the direct lane is enough.
func TestConformance(t *testing.T) {
	for name, attach := range map[string]bool{"backends that cannot attach": false, "backends that can": true} {
		t.Run(name, func(t *testing.T) {
			if !attach {
				needtest.Long(t, "backends that can attach: of one that cannot only the refusal of Attach differs, which its own law has")
			}
			var s *site
			var nodes [2]*node
			var last *Pool
			can := capable(func(can *executor.Capabilities) {
				can.Attach = attach
				can.Languages = []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}
			})
			h := backendtest.Harness{
				New: func(t *testing.T) executor.Backend {
					s = newSite(t)
					for i := range nodes {
						nodes[i] = s.worker(20, fake.Options{Capabilities: can})
					}
					last = s.pool()
					return last
				},
				Virtual: true,
				Options: backendtest.Options{
					Beside: func(id string) executor.Backend { return s.beside(nodes, id) },
					Drain: func(id string) func() {
						at := slices.IndexFunc(nodes[:], func(n *node) bool { return slices.Contains(n.fake.Sessions(), id) })
						if at < 0 {
							t.Fatalf("no worker has the session %s", id)
						}
						drained := nodes[at]
						ended := make(chan error, 1)
						ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
						go func() { ended <- drained.server.Drain(ctx) }()
						s.board.unlist(drained.ID) // Nomad does so at once
						return func() {
							defer cancel()
							if err := <-ended; err != nil {
								t.Error(err)
							}
							drained.kill()
							nodes[at] = s.serve(drained.ID, 20, drained.fake)
							s.board.list1(nodes[at].registration)
							awaittest.Until(t, "the worker that has come back", func() bool { return info(t, last).Capacity == 40 })
						}
					},
					Dialect: backendtest.DialectFake,
					Requirement: backendtest.Requirement{
						Text: "pyexec-probe==1.2.3", Import: "pyexec-probe", Version: "1.2.3", Resolved: "pyexec-probe==1.2.3",
					},
					Leftovers: func() (left []string) {
						for _, n := range nodes {
							left = append(append(left, n.fake.Sessions()...), n.fake.Running()...)
						}
						return left
					},
				},
			}
			if !attach {
				h.Only = ofAttach
			} else {
				h.Abandon = func(t *testing.T) executor.Backend {
					if err := last.Close(); err != nil {
						t.Error(err)
					}
					for i, n := range nodes {
						n.kill()
						nodes[i] = s.serve(n.ID, 20, n.fake.Abandon())
						s.board.list1(nodes[i].registration)
					}
					last = s.pool()
					return last
				}
			}
			backendtest.Run(t, h)
		})
	}
}
