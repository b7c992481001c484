package backendtest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// saboteur is a backend that keeps the law but for one thing.
type saboteur struct {
	// does says what it does wrong.
	does string
	// breaks are the ids of exactly the rules that must fail.
	breaks []string
	// hook stands before every Run of the fake; caps changes what it promises; wrap puts another Backend before it.
	hook fake.Hook
	caps func(*executor.Capabilities)
	wrap func(*fake.Backend) executor.Backend
	// sessions: it has sessions in every language, and only their rules and the watched ones are asked.
	sessions bool
	// residue is what it leaves.
	residue func() []string
	// release ends what it still holds at the end.
	release func()
	// abuses: it is judged by the rules about abuse, and the others by the others: most of what breaks one of those breaks
	// some of these too, and what each finds out is shown by a saboteur of its own.
	abuses bool
}

// isAbuse reports whether a rule is one of the abuse suite's.
func isAbuse(id string) bool { return strings.HasPrefix(id, "BE-2") && len(id) == len("BE-200") }

func saboteurs() []saboteur {
	return slices.Concat(outputSaboteurs(), resultSaboteurs(), inputSaboteurs(), limitSaboteurs(), promiseSaboteurs(), lifeSaboteurs(), sessionSaboteurs(), abuseSaboteurs())
}

// TestSaboteursFailExactlyTheirRules runs the suite on each of them, on the fake clock.
func TestSaboteursFailExactlyTheirRules(t *testing.T) {
	for i, s := range saboteurs() {
		t.Run(s.does, func(t *testing.T) {
			// Made again inside: a channel of another bubble would hold the clock.
			synctest.Test(t, func(t *testing.T) { judge(t, saboteurs()[i]) })
		})
	}
}

func judge(t *testing.T, s saboteur) {
	caps := fake.DefaultCapabilities()
	if s.sessions {
		caps = sessionCapabilities()
	}
	if s.caps != nil {
		s.caps(&caps)
	}
	inner := fake.New(fake.Options{Capabilities: &caps, Hook: s.hook})
	var b executor.Backend = inner
	if s.wrap != nil {
		b = s.wrap(inner)
	}
	options := fakeOptions()
	options.Residue = s.residue
	options.Patience = 10 * time.Second // of the fake clock
	if s.sessions {
		options.Only = sessionRuleIDs()
	}
	for _, r := range backendtest.Rules() {
		watched := strings.HasPrefix(r[0], "EV-") || strings.HasPrefix(r[0], "BE-9")
		if !s.sessions && (watched || s.abuses == isAbuse(r[0])) {
			options.Only = append(options.Only, r[0])
		}
	}
	var failed []string
	var why strings.Builder
	for _, r := range backendtest.Check(t.Context(), b, options) {
		if len(r.Errors) > 0 {
			failed = append(failed, r.ID)
			why.WriteString("\n" + r.ID + ": " + r.Errors[0])
		}
	}
	if s.release != nil {
		s.release()
	}
	slices.Sort(failed)
	want := slices.Sorted(slices.Values(s.breaks))
	if !slices.Equal(failed, want) {
		t.Errorf("it must fail %v and fails %v%s", want, failed, why.String())
	}
}

// TestEveryRuleHasASaboteur: a case that nobody can fail proves nothing.
func TestEveryRuleHasASaboteur(t *testing.T) {
	broken := map[string]bool{
		// These need a plugin process that misbehaves; core/executor/plugin tests what they rest on.
		"BE-83": true,
		"BE-84": true,
		"SE-46": true,
	}
	for _, s := range saboteurs() {
		if len(s.breaks) == 0 {
			t.Errorf("the saboteur that %s breaks nothing", s.does)
		}
		for _, id := range s.breaks {
			broken[id] = true
		}
	}
	for _, r := range backendtest.Rules() {
		if !broken[r[0]] {
			t.Errorf("no saboteur breaks %s %s", r[0], r[1])
		}
		delete(broken, r[0])
	}
	for id := range broken {
		t.Errorf("a saboteur breaks %s, which is no rule", id)
	}
}

// TestTheFakePlaysEveryBackend: whatever it promises, it keeps the law.
func TestTheFakePlaysEveryBackend(t *testing.T) {
	for name, change := range map[string]func(*executor.Capabilities){
		"all of it": func(*executor.Capabilities) {},
		"nothing": func(c *executor.Capabilities) {
			*c = executor.Capabilities{Isolation: executor.IsolationNone, Languages: c.Languages, PythonVersions: c.PythonVersions}
		},
		"what uv has": func(c *executor.Capabilities) {
			c.Isolation, c.Images, c.PreCommands, c.Disk = executor.IsolationNone, false, false, false
		},
		"what docker has": func(c *executor.Capabilities) { c.HostDirectories, c.SystemInterpreter = false, false },
	} {
		t.Run(name, func(t *testing.T) {
			for _, abuses := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { judge(t, saboteur{caps: change, abuses: abuses}) })
			}
		})
	}
}

// TestALaterBackendFollowsWhatItsPredecessorLeft covers what only a Backend with attach can do.
func TestALaterBackendFollowsWhatItsPredecessorLeft(t *testing.T) {
	caps := fake.DefaultCapabilities()
	caps.Attach = true
	var last *fake.Backend
	options := fakeOptions()
	options.Only = []string{"BE-01", "BE-42", "BE-81", "BE-82", "BE-85", "EV-03", "EV-05", "EV-07", "BE-91"}
	backendtest.Run(t, backendtest.Harness{
		New: func(*testing.T) executor.Backend {
			last = fake.New(fake.Options{Capabilities: &caps})
			return last
		},
		Abandon: func(*testing.T) executor.Backend {
			last = last.Abandon()
			return last
		},
		Options: options,
	})
}
