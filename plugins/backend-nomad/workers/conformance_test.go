package workers

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// ofAttach are the rules that depend on Attach.
var ofAttach = []string{
	"BE-01", "BE-40", "BE-42", "BE-43", "BE-80", "BE-81", "BE-82", "BE-85", "BE-90", "BE-91", "BE-92", "BE-93",
	"SE-01", "SE-02", "SE-43", "SE-44", "SE-45", "SE-47", "EV-01", "EV-02", "EV-03", "EV-05", "EV-06", "EV-07",
}

// TestConformance holds the whole way to the law: pool, mutual TLS, two workers around the fake. When the backend dies in the suite,
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
				Options: backendtest.Options{
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
