package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// toyBackend returns a backend whose daemon has these containers, and no volumes and networks. removed returns the ids that the
// daemon was asked to remove.
func toyBackend(t *testing.T, dir string, containers ...containerInfo) (b *Backend, removed func() []string) {
	t.Helper()
	type listed struct {
		ID     string `json:"Id"`
		State  string
		Labels map[string]string
	}
	var list []listed
	for _, c := range containers {
		list = append(list, listed{c.ID, c.State, c.Labels})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var gone []string
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		id, isContainer := strings.CutPrefix(path, "/containers/")
		switch {
		case path == "/containers/json":
			return http.StatusOK, string(raw)
		case path == "/volumes":
			return http.StatusOK, "{}"
		case path == "/networks":
			return http.StatusOK, "[]"
		case isContainer && r.Method == http.MethodDelete && r.URL.Query().Get("force") == "1" && r.URL.Query().Get("v") == "1":
			gone = append(gone, id)
			return http.StatusNoContent, ""
		}
		t.Errorf("unexpected request: %s %s", r.Method, r.URL)
		return http.StatusInternalServerError, "{}"
	})
	log := slog.New(slog.DiscardHandler)
	b = &Backend{daemon: d, log: log, config: Default(), place: place{Instance: "mine", Boot: newBoot(), Volume: "v"}, cleaner: newCleaner(d, log)}
	b.claims = &claims{boot: b.place.Boot, dir: dir}
	b.factory = &factory{daemon: d, cleaner: b.cleaner, log: log}
	b.results.max = minResults
	return b, func() []string {
		b.cleaner.wait()
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(gone)
		return slices.Clone(gone)
	}
}

// TestASweepRemovesWhatNobodyHas also checks that an orphan is removed only after its time.
func TestASweepRemovesWhatNobodyHas(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const dead = "dead.4194304999.1.elsewhere"
	mine, alive := newBoot(), newBoot() // of this process, so both are alive
	container := func(id, boot, instance string) containerInfo {
		return containerInfo{ID: id, State: "running", Labels: map[string]string{
			labelInstance: instance, labelBoot: boot, labelKind: kindSandbox, labelCreated: strconv.FormatInt(now.Unix(), 10),
		}}
	}
	list := []containerInfo{
		container("mine", mine, "mine"), container("overdue", mine, "mine"), container("orphan", dead, "mine"), container("taken-over", dead, "mine"),
		container("unclaimed", dead, "mine"), container("another", dead, "other"),
	}
	for dir, want := range map[string][2][]string{
		t.TempDir(): {{"overdue", "unclaimed"}, {"orphan", "overdue", "unclaimed"}},
		"":          {{"overdue"}, {"orphan", "overdue", "unclaimed"}}, // without claims on disk, a container that only waited looks like an orphan
	} {
		b, removed := toyBackend(t, dir, list...)
		b.place.Boot = mine
		claim := func(id, container, boot string, deadline time.Duration) {
			b.claims.boot = boot
			if err := b.claims.add(id, container, now.Add(deadline)); err != nil {
				t.Fatal(err)
			}
		}
		claim("exe_mine", "mine", mine, time.Hour)
		claim("exe_overdue", "overdue", mine, -time.Second)
		claim("exe_orphan", "orphan", dead, time.Hour)
		claim("exe_taken", "taken-over", alive, time.Hour)
		claim("exe_gone", "gone", mine, time.Hour)
		r := reaper{b: b, since: map[string]time.Time{"long-gone": now}}
		orphans, err := r.sweep(t.Context(), now)
		if got := removed(); err != nil || !slices.Equal(got, want[0]) {
			t.Errorf("folder %q: removed %q, want %q: %v", dir, got, want[0], err)
		}
		// The number includes the containers that are being removed, so that the next sweep comes soon.
		if orphans != 3 {
			t.Errorf("folder %q: %d orphans, want 3", dir, orphans)
		}
		if _, there := r.since["long-gone"]; there {
			t.Error("a container that is gone is still remembered as an orphan")
		}
		for id, left := range map[string]bool{"exe_mine": true, "exe_overdue": true, "exe_orphan": true, "exe_taken": true, "exe_gone": false} {
			if _, ok := b.claims.find(id); ok != left {
				t.Errorf("the claim of %s exists: %v, want %v", id, ok, left)
			}
		}
		// An orphan is removed only when its runner has had the time to end itself.
		for _, c := range []struct {
			after time.Duration
			want  []string
		}{{b.config.silence() + orphanTime, want[0]}, {b.config.silence() + orphanTime + time.Second, want[1]}} {
			if _, err := r.sweep(t.Context(), now.Add(c.after)); err != nil {
				t.Fatal(err)
			}
			if got := slices.Compact(removed()); !slices.Equal(got, c.want) {
				t.Errorf("folder %q, after %s: removed %q, want %q", dir, c.after, got, c.want)
			}
		}
		if got := b.reaped.Load(); got == 0 {
			t.Error("no removal was counted")
		}
	}
}

// mute is a runner that says Hello and nothing else.
func mute(t *testing.T) *runner.Conn {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = far.Close() // no error
		<-ended
	})
	go func() {
		defer close(ended)
		in := protocol.NewReader(far)
		_, n, err := in.Header()
		var hello protocol.Hello
		if err = errors.Join(err, protocol.ReadJSON(in, n, &hello)); err == nil {
			err = protocol.NewWriter(far).SendJSON(protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version})
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, far) // until an end is closed
	}()
	conn, err := runner.NewConn(near, runner.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestTheContainerOfAnEndIsKeptWhereItMayBeAskedForAgain, until its time is over.
func TestTheContainerOfAnEndIsKeptWhereItMayBeAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		embedded, started bool
		err               error
		kept              int
	}{
		"it has ended":              {started: true, kept: 1},
		"its connection broke off":  {started: true, err: executor.Errorf(executor.Unavailable, "lost"), kept: 1},
		"another error":             {started: true, err: executor.Errorf(executor.Internal, "broken")},
		"its program never started": {},
		"no later process can ask":  {embedded: true, started: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, removed := toyBackend(t, t.TempDir())
			b.embedded = c.embedded
			began := time.Now()
			b.retire("exe_1", &sandbox{id: "c1", conn: mute(t)}, c.started, c.err)
			b.wg.Wait()
			if got := removed(); b.results.count() != c.kept || len(got) != 1-c.kept {
				t.Errorf("%d are kept, and %q removed", b.results.count(), got)
			}
			r := reaper{b: b, since: map[string]time.Time{}}
			for _, after := range []time.Duration{b.config.silence(), b.config.silence() + time.Minute} {
				if _, err := r.sweep(t.Context(), began.Add(after-time.Second)); err != nil {
					t.Fatal(err)
				}
				if want := after > b.config.silence(); (len(removed()) == 1) != (want || c.kept == 0) {
					t.Errorf("after %s: %q removed", after, removed())
				}
			}
		})
	}
}

// endedBox is a sandbox without a connection.
func endedBox(id string) *sandbox { return &sandbox{id: id} }

func TestResultsAreKeptInTheirNumberAndForTheirTime(t *testing.T) {
	t.Parallel()
	r := results{max: 2}
	for n, want := range []string{"", "", "c0", "c1"} {
		evicted := ""
		for _, k := range r.put(fmt.Sprint("e", n), endedBox(fmt.Sprint("c", n))) {
			evicted += k.box.id
		}
		if evicted != want {
			t.Errorf("put number %d evicted %q, want %q", n, evicted, want)
		}
	}
	if r.take("e0") != nil || r.count() != 2 || r.take("e3").id != "c3" || r.count() != 1 || r.take("e3") != nil {
		t.Errorf("%+v", r.kept)
	}
}

// TestAClaimIsForgottenOnlyWithItsContainer: without its claim, a container would not be removed.
func TestAClaimIsForgottenOnlyWithItsContainer(t *testing.T) {
	t.Parallel()
	works := false
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		if r.Method == http.MethodDelete && path == "/containers/c1" && works {
			return http.StatusNoContent, ""
		}
		return http.StatusInternalServerError, `{"message":"not now"}`
	})
	b, _ := toyBackend(t, t.TempDir())
	b.daemon, b.cleaner = d, newCleaner(d, b.log)
	if err := b.claims.add("exe_1", "c1", time.Unix(1<<33, 0)); err != nil {
		t.Fatal(err)
	}
	b.results.put("exe_1", endedBox("c1"))
	b.unclaim("exe_1", "another")
	if _, ok := b.claims.find("exe_1"); !ok {
		t.Fatal("unclaim of another container dropped the claim")
	}
	for _, works = range []bool{false, true} {
		err := b.removeClaimed(t.Context(), "exe_1")
		if _, ok := b.claims.find("exe_1"); ok == works || (err == nil) != works {
			t.Errorf("the daemon works: %v; the claim exists: %v, error %v", works, ok, err)
		}
		if b.results.count() != 0 {
			t.Error("the Result is still kept")
		}
	}
	if err := b.removeClaimed(t.Context(), "exe_1"); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestOnlyASandboxOfThisInstallationIsResumed: a handle may name any container.
func TestOnlyASandboxOfThisInstallationIsResumed(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"another installation's": {labelInstance: "other", labelKind: kindSandbox},
		"a preparation":          {labelInstance: "mine", labelKind: kindPrepare},
		"a user's":               {},
	} {
		raw, err := json.Marshal(map[string]any{"Id": "c1", "State": map[string]any{"Status": "running"}, "Config": map[string]any{"Labels": labels}})
		if err != nil {
			t.Fatal(err)
		}
		var others []string
		d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
			if r.Method != http.MethodGet || path != "/containers/c1/json" {
				others = append(others, r.Method+" "+path)
			}
			return http.StatusOK, string(raw)
		})
		b, _ := toyBackend(t, "")
		b.daemon = d
		if _, err := b.resume(context.WithoutCancel(t.Context()), handle{Container: "c1"}, runner.ResumeOptions{}); executor.CodeOf(err) != executor.NotFound || len(others) > 0 {
			t.Errorf("%s: %v, and unexpected requests: %q", name, err, others)
		}
	}
}

// TestOnlyOurOwnPreparedImagesAreEvicted: an image that a user made from a prepared one inherits its labels.
func TestOnlyOurOwnPreparedImagesAreEvicted(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("ab", 32)
	ours := func(id, tag string, labels map[string]string) string {
		raw, err := json.Marshal(map[string]any{
			"Id": id, "RepoTags": []string{tag}, "Config": map[string]any{"Labels": labels}, "Metadata": map[string]any{"LastTagTime": "2001-01-01T00:00:00Z"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	images := map[string]string{
		"ours":   ours("ours", preparedName(key), map[string]string{labelPrepared: key, labelBytes: "100"}),
		"users":  ours("users", "team/app:1", map[string]string{labelPrepared: key, labelBytes: "100"}),
		"broken": ours("broken", "team/app:2", map[string]string{labelPrepared: "short"}),
	}
	var removed []string
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		id := strings.TrimSuffix(strings.TrimPrefix(path, "/images/"), "/json")
		switch {
		case path == "/images/json" && strings.Contains(r.URL.Query().Get("filters"), labelPrepared):
			return http.StatusOK, `[{"Id":"ours"},{"Id":"users"},{"Id":"broken"},{"Id":"went"}]`
		case r.Method == http.MethodDelete:
			removed = append(removed, id)
			return http.StatusOK, "[]"
		case images[id] != "":
			return http.StatusOK, images[id]
		case id == preparedName(key):
			return http.StatusOK, images["broken"]
		}
		return http.StatusNotFound, `{"message":"no such image"}`
	})
	c := newPreparedCache(d, 10, slog.New(slog.DiscardHandler))
	if _, found, err := c.find(t.Context(), key); found || err != nil {
		t.Errorf("found an image with another key: %v, %v", found, err)
	}
	c.used[key] = time.Now()
	c.evict(t.Context())
	if len(removed) > 0 {
		t.Errorf("removed %q, which was just requested", removed)
	}
	c.used[key] = time.Unix(1, 0)
	c.evict(t.Context())
	if !slices.Equal(removed, []string{"ours"}) {
		t.Errorf("removed %q", removed)
	}
}

func TestARefusalNamesEveryFieldAndInvalidComesFirst(t *testing.T) {
	t.Parallel()
	can := promises(daemonInfo{system.Info{MemoryLimit: true, CPUShares: true, PidsLimit: true}}, Default())
	limits := job(executor.Spec{}).Limits
	small := limits
	small.MemoryBytes = minMemory - 1
	exact := limits
	exact.MemoryBytes = minMemory
	for name, c := range map[string]struct {
		job    executor.Job
		code   executor.Code
		fields string
	}{
		"nothing":                  {executor.Job{Limits: limits}, "", ""},
		"the least memory":         {executor.Job{Limits: exact}, "", ""},
		"too little memory":        {executor.Job{Limits: small}, executor.Invalid, "config.memory_mb"},
		"a script":                 {executor.Job{Spec: executor.Spec{Script: "x"}, Limits: limits}, executor.Unimplemented, "script"},
		"a script, and bad memory": {executor.Job{Spec: executor.Spec{Script: "x"}, Limits: small}, executor.Invalid, "config.memory_mb script"},
		"a NUL":                    {executor.Job{Spec: executor.Spec{PreCommands: []string{"true", "a\x00"}}, Limits: limits}, executor.Invalid, "pre_commands[1]"},
		"many commands":            {executor.Job{Spec: executor.Spec{PreCommands: make([]string, backend.MaxCommands+1)}, Limits: limits}, executor.Invalid, "pre_commands"},
		"as many as may be":        {executor.Job{Spec: executor.Spec{PreCommands: make([]string, backend.MaxCommands)}, Limits: limits}, "", ""},
		"long commands":            {executor.Job{Spec: executor.Spec{PreCommands: []string{strings.Repeat("x", backend.MaxCommandBytes), "x"}}, Limits: limits}, executor.Invalid, "pre_commands"},
	} {
		err := refuse(c.job, can)
		var got []string
		if e, ok := err.(*executor.Error); ok { //nolint:errorlint // refuse wraps nothing
			for _, f := range e.Fields {
				got = append(got, f.Field)
			}
		}
		if c.code == "" && err == nil {
			continue
		}
		if executor.CodeOf(err) != c.code || strings.Join(got, " ") != c.fields {
			t.Errorf("%s: %v, fields %q", name, err, got)
		}
	}
}

func TestWhatAnImageIsGiven(t *testing.T) {
	t.Parallel()
	all := prepareSettings{
		trust:     "trusted_images",
		variables: map[string]string{"UV_DEFAULT_INDEX": "https://a:canary@x/simple", "UV_INDEX": "n=https://b:canary@y https://c:canary@z"},
		proxies:   map[string]string{"HTTPS_PROXY": "http://d:canary@p"}, links: []string{"https://e:canary@l"}, folders: []string{"/wheels"}, netrc: "canary", bundle: "/ca",
	}
	for _, c := range []struct{ trusted, foreign, index, proxy bool }{{true, false, true, true}, {true, true, false, true}, {false, false, false, false}, {false, true, false, false}} {
		s := all.given(c.trusted, c.foreign)
		index := strings.Count(fmt.Sprint(s.variables, s.links, s.netrc), "canary")
		if (index == 5) != c.index || (index == 0) == c.index || strings.Contains(fmt.Sprint(s.proxies), "canary") != c.proxy || s.fewerThan(all) == (c.index && c.proxy) {
			t.Errorf("%+v: %+v", c, s)
		}
		why := "" // of a failed installation
		switch {
		case !c.trusted:
			why = `add "app" to trusted_images`
		case c.foreign:
			why = "because pre_commands came before it"
		}
		i := &images{settings: all}
		f := i.installFailure(installation{asked: imageInfo{Name: "app", Trusted: c.trusted}, settings: s}, "HTTP status client error (401 Unauthorized)")
		if !strings.Contains(f.Message, why) || why != "" && (f.Code != executor.Invalid || f.Field != "requirements_txt") || why == "" && strings.Contains(f.Message, "credentials of indexes") {
			t.Errorf("%+v: %+v", c, f)
		}
		if s.variables["UV_INDEX"] == "" || s.bundle != "/ca" || len(s.folders) != 1 {
			t.Errorf("%+v: settings other than credentials are missing: %+v", c, s)
		}
	}
	if strings.Count(fmt.Sprint(all.variables, all.links), "canary") != 4 {
		t.Errorf("the settings themselves were changed: %+v", all)
	}
}

// TestAnOrphanThatIsTakenUpBeginsAnew: its earlier time as an orphan does not count when it becomes one again.
func TestAnOrphanThatIsTakenUpBeginsAnew(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const dead = "dead.4194304999.1.elsewhere"
	b, removed := toyBackend(t, t.TempDir(), containerInfo{ID: "orphan", State: "running", Labels: map[string]string{
		labelInstance: "mine", labelBoot: dead, labelKind: kindSandbox, labelCreated: strconv.FormatInt(now.Unix(), 10),
	}})
	mine := b.claims.boot
	r := reaper{b: b, since: map[string]time.Time{}}
	after := b.config.silence() + orphanTime
	for n, c := range []struct {
		boot    string
		at      time.Duration
		orphans int
	}{{dead, 0, 1}, {mine, after / 2, 0}, {dead, after, 1}, {dead, after + after/2, 1}} {
		b.claims.boot = c.boot
		if err := b.claims.add("exe", "orphan", now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		orphans, err := r.sweep(t.Context(), now.Add(c.at))
		if err != nil || orphans != c.orphans || len(removed()) > 0 {
			t.Errorf("sweep %d: %d orphans, %q removed: %v", n, orphans, removed(), err)
		}
	}
	if _, err := r.sweep(t.Context(), now.Add(2*after+time.Second)); err != nil || len(removed()) != 1 {
		t.Errorf("%q removed: %v", removed(), err)
	}
}
