package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// trial is what a row of the table must mean: who may do an operation, by the scopes that are enough for it.
type trial struct {
	operation operation
	// needs is the scope that the operation needs. ScopeAdmin stands in for exec and read.
	needs executor.Scope
	// owned: it is done to an Execution or a Session, which only its owner and an administrator reach.
	owned bool
	// do does it; id is an Execution or a Session of alice.
	do func(ctx context.Context, r *rig, id string) error
}

func done[T any](_ T, err error) error { return err }

func submitSpec(s executor.Spec) func(context.Context, *rig, string) error {
	return func(ctx context.Context, r *rig, _ string) error { return done(r.Submit(ctx, s, executor.Input{})) }
}

func trials() []trial {
	const read, exec = executor.ScopeRead, executor.ScopeExec
	return []trial{
		{opAdmit, exec, false, func(ctx context.Context, r *rig, _ string) error { return r.Admit(ctx) }},
		{opSubmit, exec, false, submitSpec(executor.Spec{Code: "exit 0"})},
		{opSubmitInSession, exec, true, func(ctx context.Context, r *rig, id string) error {
			return done(r.Submit(ctx, executor.Spec{Code: "exit 0", Session: id}, executor.Input{}))
		}},
		{opSubmitScript, executor.ScopeScripts, false, submitSpec(executor.Spec{Script: "/srv/x.sh"})},
		{opSubmitDirectory, executor.ScopeTrusted, false, submitSpec(executor.Spec{Code: "exit 0", HostDirectory: "/srv"})},
		{opGet, read, true, func(ctx context.Context, r *rig, id string) error { return done(r.Get(ctx, id)) }},
		{opList, read, false, func(ctx context.Context, r *rig, _ string) error { return done(r.List(ctx, executor.Filter{})) }},
		{opEvents, read, true, func(ctx context.Context, r *rig, id string) error {
			for _, err := range r.Events(ctx, id, 0) {
				return err
			}
			return nil
		}},
		{opArtifacts, read, true, func(ctx context.Context, r *rig, id string) error { return done(r.Artifacts(ctx, id)) }},
		{opCancel, exec, true, func(ctx context.Context, r *rig, id string) error { return done(r.Cancel(ctx, id)) }},
		{opOpenSession, exec, false, func(ctx context.Context, r *rig, _ string) error {
			return done(r.OpenSession(ctx, executor.Session{}))
		}},
		{opGetSession, read, true, func(ctx context.Context, r *rig, id string) error { return done(r.GetSession(ctx, id)) }},
		{opListSessions, read, false, func(ctx context.Context, r *rig, _ string) error { return done(r.ListSessions(ctx)) }},
		{opInterruptSession, exec, true, func(ctx context.Context, r *rig, id string) error { return done(r.InterruptSession(ctx, id)) }},
		{opRestartSession, exec, true, func(ctx context.Context, r *rig, id string) error {
			return done(r.RestartSession(ctx, id, false))
		}},
		{opCloseSession, exec, true, func(ctx context.Context, r *rig, id string) error { return done(r.CloseSession(ctx, id)) }},
		{opVariables, exec, true, func(ctx context.Context, r *rig, id string) error { return done(r.Variables(ctx, id)) }},
		{opAddRequirements, exec, true, func(ctx context.Context, r *rig, id string) error {
			return done(r.AddRequirements(ctx, id, "six"))
		}},
		{opListFiles, read, true, func(ctx context.Context, r *rig, id string) error { return done(r.ListFiles(ctx, id, "", false)) }},
		{opReadFile, read, true, func(ctx context.Context, r *rig, id string) error {
			_, file, err := r.ReadFile(ctx, id, "f")
			if err == nil {
				err = file.Close()
			}
			return err
		}},
		{opWriteFile, exec, true, func(ctx context.Context, r *rig, id string) error {
			return done(r.WriteFile(ctx, id, executor.File{Path: "f", SizeBytes: 1}, strings.NewReader("f")))
		}},
		{opRemoveFile, exec, true, func(ctx context.Context, r *rig, id string) error { return r.RemoveFile(ctx, id, "f") }},
		{opBackends, read, false, func(ctx context.Context, r *rig, _ string) error { return done(r.Backends(ctx)) }},
		{opScripts, executor.ScopeScripts, false, func(ctx context.Context, r *rig, _ string) error { return done(r.Scripts(ctx)) }},
	}
}

// scriptFake is a fake that runs scripts, too.
type scriptFake struct{ *fake.Backend }

func (scriptFake) Scripts(context.Context) ([]executor.Script, error) { return nil, nil }

func TestEveryRowOfTheRights(t *testing.T) {
	t.Parallel()
	seen := map[operation]bool{}
	for _, c := range trials() {
		seen[c.operation] = true
		inBubble(t, func(t *testing.T) {
			caps := fake.DefaultCapabilities()
			caps.Sessions, caps.HostDirectories, caps.Scripts = true, true, true
			options := fake.Options{Capabilities: &caps}
			r := newRig(t, setup{fake: options, backend: scriptFake{fake.New(options)}})
			alice := as("alice")
			session := strings.Contains(string(c.operation), "ession") || strings.Contains(string(c.operation), "File") ||
				c.operation == opVariables || c.operation == opAddRequirements
			id := func() string {
				if !session {
					x := r.submit(alice, "exit 0")
					r.result(x.ID)
					return x.ID
				}
				s := must(r.OpenSession(alice, executor.Session{}))
				must(r.WriteFile(alice, s.ID, executor.File{Path: "f", SizeBytes: 1}, strings.NewReader("f")))
				return s.ID
			}
			try := func(owner string, scope executor.Scope, id string) executor.Code {
				err := c.do(as(owner, scope), r, id)
				synctest.Wait()
				return executor.CodeOf(err)
			}
			for _, scope := range executor.Scopes() {
				implied := scope == executor.ScopeAdmin && (c.needs == executor.ScopeExec || c.needs == executor.ScopeRead)
				code := try("alice", scope, id())
				// A host directory needs the right to submit at all, besides.
				want := scope == c.needs && c.operation != opSubmitDirectory || implied
				if (code == executor.Denied) == want || want && code != "" {
					t.Errorf("%s with the scope %s: %q", c.operation, scope, code)
				}
			}
			if c.operation == opSubmitDirectory {
				ctx := as("alice", executor.ScopeExec, executor.ScopeTrusted)
				if err := c.do(ctx, r, ""); executor.CodeOf(err) == executor.Denied {
					t.Errorf("%s with exec and trusted: %v", c.operation, err)
				}
			}
			if c.owned {
				if code := try("bob", c.needs, id()); code != executor.NotFound {
					t.Errorf("%s of another owner: %q", c.operation, code)
				}
				if code := try("bob", executor.ScopeAdmin, id()); code != "" {
					t.Errorf("%s of another owner for an administrator: %q", c.operation, code)
				}
			}
		})
	}
	for op := range rights {
		if !seen[op] {
			t.Errorf("%s is not tried", op)
		}
	}
	for method := range reflect.TypeFor[executor.Service]().Methods() {
		if _, ok := rights[operation(method.Name)]; !ok {
			t.Errorf("%s is in no row", method.Name)
		}
	}
}

func TestListsHoldOnesOwnUnlessOneIsAnAdministrator(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		r.submit(as("alice"), "exit 0")
		r.open(as("alice"))
		for owner, want := range map[string]int{"alice": 1, "bob": 0} {
			x, s := must(r.List(as(owner), executor.Filter{Owner: "alice"})), must(r.ListSessions(as(owner)))
			if len(x) != want || len(s) != want {
				t.Errorf("%s lists %d executions and %d sessions, want %d", owner, len(x), len(s), want)
			}
		}
		root := as("root", executor.ScopeAdmin)
		if x, s := must(r.List(root, executor.Filter{})), must(r.ListSessions(root)); len(x) != 1 || len(s) != 1 {
			t.Errorf("an administrator lists %d executions and %d sessions", len(x), len(s))
		}
	})
}

func TestARequestMayFollowWhatItHasSubmitted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		exec := as("alice", executor.ScopeExec)
		other := r.submit(exec, "exit 0")
		ctx := executor.WithRequest(exec)
		own := r.submit(ctx, "exit 0")
		r.result(own.ID)
		if x, err := r.Get(ctx, own.ID); err != nil || x.ID != own.ID {
			t.Errorf("Get: %v", err)
		}
		for _, err := range r.Events(ctx, own.ID, 0) {
			if err != nil {
				t.Errorf("Events: %v", err)
			}
		}
		denied := func(what string, err error) {
			t.Helper()
			if executor.CodeOf(err) != executor.Denied {
				t.Errorf("%s: %v", what, err)
			}
		}
		denied("another Execution", done(r.Get(ctx, other.ID)))
		denied("in another request", done(r.Get(exec, own.ID)))
		denied("in another request of its own", done(r.Get(executor.WithRequest(exec), own.ID)))
		denied("its artifacts", done(r.Artifacts(ctx, own.ID)))
		without := executor.WithPrincipal(ctx, executor.Principal{Owner: "alice", Scopes: []executor.Scope{executor.ScopeScripts}})
		denied("without exec", done(r.Get(without, own.ID)))
		bob := executor.WithPrincipal(ctx, executor.Principal{Owner: "bob", Scopes: []executor.Scope{executor.ScopeExec}})
		wantCode(t, done(r.Get(bob, own.ID)), executor.NotFound)
	})
}

func TestAFolderThatTheConfigurationOpensNeedsNoTrust(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, secret := filepath.Join(base, "open"), filepath.Join(base, "secret")
	inside, link := filepath.Join(root, "a"), filepath.Join(root, "link")
	for _, dir := range []string{inside, secret, root + "er"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	named := filepath.Join(base, "named")
	for name, target := range map[string]string{link: secret, named: root} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	inBubble(t, func(t *testing.T) {
		caps := fake.DefaultCapabilities()
		caps.HostDirectories = true
		r := newRig(t, setup{fake: fake.Options{Capabilities: &caps}, options: Options{HostDirectories: []string{"/nowhere", named}}})
		for dir, open := range map[string]bool{
			root: true, inside: true, secret: false, base: false, root + "er": false, link: false, named: false,
			filepath.Join(root, "absent"): false, root + "/../secret": false, "/": false,
		} {
			spec := executor.Spec{Code: "exit 0", HostDirectory: dir}
			_, err := r.Submit(as("alice", executor.ScopeExec), spec, executor.Input{})
			if denied := executor.CodeOf(err) == executor.Denied; denied == open {
				t.Errorf("%s: %v", dir, err)
			}
			_, err = r.Submit(as("alice", executor.ScopeRead, executor.ScopeScripts), spec, executor.Input{})
			wantCode(t, err, executor.Denied)
		}
		// A backend follows no link, so it gets the real path where the caller may use every folder.
		for dir, want := range map[string]string{link: secret, named: root, inside: inside, base + "/none": base + "/none"} {
			x, err := r.Submit(as("alice", executor.ScopeExec, executor.ScopeTrusted), executor.Spec{Code: "exit 0", HostDirectory: dir}, executor.Input{})
			if err != nil || x.Spec.HostDirectory != want {
				t.Errorf("%s: the backend gets %q, want %q (%v)", dir, x.Spec.HostDirectory, want, err)
			}
		}
		// The name in the configuration leads elsewhere later.
		if err := errors.Join(os.Remove(named), os.Symlink(secret, named)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(as("alice", executor.ScopeExec), executor.Spec{Code: "exit 0", HostDirectory: secret}, executor.Input{}); executor.CodeOf(err) != executor.Denied {
			t.Errorf("what a name of the configuration leads to now: %v", err)
		}
	})
}

func TestTheContractShowsTheRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	shown := map[operation]right{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| (\w+) \| (\S+) \| (.+?) \|$`).FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			shown[operation(strings.ReplaceAll(name, "`", ""))] = right{executor.Scope(row[2]), reach(row[3]), exception(strings.ReplaceAll(row[4], "`", ""))}
		}
	}
	delete(shown, "operation")
	for op, want := range rights {
		if shown[op] != want {
			t.Errorf("docs/contract.md says %+v of %s, the table %+v", shown[op], op, want)
		}
		delete(shown, op)
	}
	for op := range shown {
		t.Errorf("docs/contract.md has a row for %s", op)
	}
}
