package backendtest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// saboteur is a Backend that breaks one thing of the contract.
type saboteur struct {
	// does describes what the saboteur does wrong.
	does string
	// breaks are the ids of exactly the rules that must fail.
	breaks []string
	// hook replaces every Run of the fake. caps changes its Capabilities. wrap puts another Backend in front of the fake.
	hook fake.Hook
	caps func(*executor.Capabilities)
	wrap func(*fake.Backend) executor.Backend
	// sessions reports whether the saboteur has Sessions in every language. Only the rules of Sessions and the watched rules
	// then run.
	sessions bool
	// drain is Options.Drain.
	drain func(b *fake.Backend, sessionID string)
	// leftovers lists the leftovers of the saboteur.
	leftovers func() []string
	// release frees what the saboteur still holds at the end.
	release func()
	// abuses reports whether only the rules about abuse run for the saboteur. For the others these rules do not run. Most
	// saboteurs would break rules of both kinds, and each rule has a saboteur of its own.
	abuses bool
}

// isAbuse reports whether a rule belongs to the abuse suite.
func isAbuse(id string) bool { return strings.HasPrefix(id, "BE-2") && len(id) == len("BE-200") }

func saboteurs() []saboteur {
	return slices.Concat(outputSaboteurs(), resultSaboteurs(), inputSaboteurs(), limitSaboteurs(), promiseSaboteurs(), lifeSaboteurs(), sessionSaboteurs(), abuseSaboteurs())
}

// TestSaboteursFailExactlyTheirRules runs the suite on each saboteur, on the fake clock.
func TestSaboteursFailExactlyTheirRules(t *testing.T) {
	for i, s := range saboteurs() {
		t.Run(s.does, func(t *testing.T) {
			// The saboteurs are made again inside the bubble, because a channel of another bubble would stop the clock.
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
	options := backendtest.Virtual(fakeOptions())
	options.Leftovers = s.leftovers
	if s.drain != nil {
		options.Drain = func(id string) func() {
			s.drain(inner, id)
			return func() {}
		}
	}
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

// TestEveryRuleHasASaboteur checks that every case can fail.
func TestEveryRuleHasASaboteur(t *testing.T) {
	broken := map[string]bool{
		// These rules need a plugin process that misbehaves. The tests of core/executor/plugin cover their basis.
		"BE-83": true,
		"BE-84": true,
		"SE-46": true,
	}
	for id := range pluginSaboteurs() {
		broken[id] = true
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

// TestTheFakePlaysEveryBackend checks that the fake passes the suite with any Capabilities.
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

// TestALaterBackendFollowsWhatItsPredecessorLeft covers what only a Backend with Attach can do.
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
		Lanes:   []backendtest.LaneRules{{Lane: backendtest.LaneDirect}, {Lane: backendtest.LaneWire}},
		Virtual: true,
		Options: options,
	})
}
