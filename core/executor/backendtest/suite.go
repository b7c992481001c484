package backendtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// rule is a rule of docs/contract.md with its check.
type rule struct {
	ID   string
	Name string
	// Check runs programs to check the rule; nil for a watched rule, which is checked in every run and reported at the end.
	Check func(c *Case)
}

// String returns the name of the subtest: the id and the sentence in docs/contract.md.
func (r rule) String() string { return r.ID + " " + r.Name }

// Rules returns the ids and names of every rule, in order, as docs/contract.md must have them.
func Rules() [][2]string {
	var list [][2]string
	for _, r := range slices.Concat(allRules(), pluginRules()) {
		list = append(list, [2]string{r.ID, r.Name})
	}
	return list
}

// allRules returns the rules with a Check, followed by the watched rules, whose result depends on the runs of the others.
func allRules() []rule {
	return slices.Concat(programRules(), inputRules(), outputRules(), limitRules(), stopRules(), treeRules(), prepareRules(),
		hostileRules(), mixRules(), machineRules(), promiseRules(), lifeRules(), sessionRules(), abuseRules(), watchedRules())
}

// suite tests one Backend in one lane.
type suite struct {
	backend   executor.Backend
	lane      Lane
	options   Options
	successor func() executor.Backend
	victim    func() (b executor.Backend, kill func())
	// program is what the rules of plugin processes start; nil in the lanes without one.
	program *program
	info    executor.Info
	infoErr error
	jobs    atomic.Int64
	// tag is in the ids of the suite's Executions. It makes them differ from those of every other suite, which may use the same machine.
	tag string

	mu         sync.Mutex
	violations map[string][]string // of watched rules, by id
	seen       map[string]bool     // watched rules that had something to watch
	journals   []*journal
}

func newSuite(b executor.Backend, lane Lane, o Options, successor func() executor.Backend) *suite {
	if o.Dialect == "" {
		o.Dialect = DialectPython
	}
	s := &suite{
		backend:    b,
		lane:       lane,
		options:    o,
		successor:  successor,
		tag:        strings.ToLower(rand.Text()[:16]),
		violations: map[string][]string{},
		seen:       map[string]bool{},
	}
	c := s.run(context.Background(), rule{Check: func(c *Case) {
		within(c, "Info", func(ctx context.Context) (err error) {
			s.info, err = b.Info(ctx)
			return err
		})
	}})
	if len(c.errors) > 0 {
		s.infoErr = errors.New(c.errors[0])
	}
	return s
}

func (s *suite) rules() []rule {
	rules := allRules()
	if s.program != nil {
		rules = append(pluginRules(), rules...)
	}
	if len(s.options.Only) > 0 {
		rules = slices.DeleteFunc(rules, func(r rule) bool { return !slices.Contains(s.options.Only, r.ID) })
	}
	return rules
}

// violate records that a watched rule was broken.
func (s *suite) violate(id, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.violations[id]; len(list) < 10 {
		s.violations[id] = append(list, fmt.Sprintf(format, args...))
	}
}

// check checks one rule.
func (s *suite) check(ctx context.Context, r rule) RuleResult {
	if r.Check == nil {
		for _, j := range s.journals {
			j.late()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return RuleResult{ID: r.ID, Name: r.Name, Errors: s.violations[r.ID]}
	}
	if s.infoErr != nil {
		return RuleResult{ID: r.ID, Name: r.Name, Errors: []string{s.infoErr.Error()}}
	}
	c := s.run(ctx, r)
	for _, left := range s.leftovers() {
		s.violate("BE-93", "%s: %s", r.ID, left)
	}
	return RuleResult{ID: r.ID, Name: r.Name, Errors: c.errors, Skipped: c.skipped, Log: c.logged}
}

// run runs the Check of one rule in a goroutine, which Fatalf can end, and returns the case.
func (s *suite) run(ctx context.Context, r rule) *Case {
	c := &Case{suite: s, rule: r}
	var cancel context.CancelCauseFunc
	c.ctx, cancel = context.WithCancelCause(ctx)
	defer cancel(errors.New("the case is over"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.cleanup()
		defer func() {
			if v := recover(); v != nil {
				c.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		r.Check(c)
	}()
	<-done
	return c
}

// Case is the parameter of a rule's Check. It takes the place of a testing.T, for package awaittest, too.
type Case struct {
	suite    *suite
	rule     rule
	ctx      context.Context //nolint:containedctx // the case is the scope of its ctx, as testing.T is
	mu       sync.Mutex
	errors   []string
	logged   []string
	skipped  string
	deferred []func()
}

// Errorf records an error. The case goes on.
func (c *Case) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errors = append(c.errors, fmt.Sprintf(format, args...))
}

// Fatalf records an error and ends the case.
func (c *Case) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf ends the case as not applicable.
func (c *Case) Skipf(format string, args ...any) {
	c.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Logf adds a line to the log of the case.
func (c *Case) Logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logged = append(c.logged, fmt.Sprintf(format, args...))
}

// Helper does nothing: the errors of a case have no lines.
func (c *Case) Helper() {}

// Context returns the context of the case.
func (c *Case) Context() context.Context { return c.ctx }

// Bound returns how long a wait of package awaittest lasts before it fails.
func (c *Case) Bound() time.Duration { return cmp.Or(c.suite.options.bound, awaittest.Bound) }

// Cleanup registers f to run at the end of the case. The last registered function runs first. f may end with Fatalf.
func (c *Case) Cleanup(f func()) { c.deferred = append(c.deferred, f) }

func (c *Case) cleanup() {
	if last := len(c.deferred) - 1; last >= 0 {
		f := c.deferred[last]
		c.deferred = c.deferred[:last]
		defer c.cleanup()
		f()
	}
}

// caps returns the Capabilities that the Backend under test declares.
func (c *Case) caps() executor.Capabilities { return c.suite.info.Capabilities }

// need skips the case if the Backend does not declare a capability. It is for cases without a check of the refusal.
func (c *Case) need(promised bool, what string) {
	if !promised {
		c.Skipf("the backend does not promise %s", what)
	}
}
