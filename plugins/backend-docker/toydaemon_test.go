package dockerbackend

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// versionForm matches the beginning of paths of the daemon's API.
var versionForm = regexp.MustCompile(`^/v[0-9.]+`)

// toyDaemon returns a client of a daemon that sends the answers of answer: a status and JSON. path is without the version.
func toyDaemon(t *testing.T, answer func(r *http.Request, path string) (status int, body string)) *daemon {
	t.Helper()
	return toyDaemonServing(t, func(w http.ResponseWriter, r *http.Request, path string) {
		status, body := answer(r, path)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// toyDaemonServing returns a client of a daemon whose answers serve writes, as JSON. path is without the version.
func toyDaemonServing(t *testing.T, serve func(w http.ResponseWriter, r *http.Request, path string)) *daemon {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		path := versionForm.ReplaceAllString(r.URL.Path, "")
		if path == "/_ping" {
			return
		}
		serve(w, r, path)
	}))
	t.Cleanup(server.Close)
	d, err := dial(t.Context(), "tcp://"+server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestTheReaperAsksOnlyForWhatIsOursAndRemovesNothingElse: all other objects of a daemon belong to its users.
func TestTheReaperAsksOnlyForWhatIsOursAndRemovesNothingElse(t *testing.T) {
	t.Parallel()
	const old = `"CreatedAt":"2001-01-01T00:00:00Z","Created":"2001-01-01T00:00:00Z","Labels":{"com.example":"x"}`
	answers := map[string]string{
		"/containers/json": `[{"Id":"users-container","State":"created","Created":1,"Labels":{"com.example":"x"}}]`,
		"/volumes":         `{"Volumes":[{"Name":"users-volume","Driver":"local",` + old + `},{"Name":"users-own",` + old + `}]}`,
		"/networks":        `[{"Name":"users-network","Id":"n1","Driver":"bridge",` + strings.Replace(old, `"Created":`, `"X":`, 1) + `}]`,
	}
	var mu sync.Mutex
	var asked, others []string
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(r.URL.Query().Get("filters"), labelInstance) {
			asked = append(asked, path)
		} else {
			others = append(others, r.Method+" "+path)
		}
		return http.StatusOK, answers[path]
	})
	for _, mine := range []string{"mine", ""} {
		log := slog.New(slog.DiscardHandler)
		b := &Backend{daemon: d, log: log, place: place{Instance: mine, Boot: newBoot(), Volume: "volume"}, cleaner: newCleaner(d, log), claims: &claims{}}
		r := reaper{b: b, since: map[string]time.Time{}}
		if _, err := r.sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		b.cleaner.wait()
	}
	if want := "/containers/json /volumes /networks"; strings.Join(asked, " ") != want+" "+want || len(others) > 0 {
		t.Errorf("asked for %q, and unexpectedly for %q", asked, others)
	}
}

// TestTheReaperKeepsWhatIsInUseByName: it keeps the volume of this version, this installation's network, and a network of a
// user with our label.
func TestTheReaperKeepsWhatIsInUseByName(t *testing.T) {
	t.Parallel()
	labelled := func(kind, name, instance string) string {
		return fmt.Sprintf(`{"%s":"%s","Id":"%s","Driver":"local","Labels":{"%s":"%s","%s":"%s"}}`, kind, name, name, labelInstance, instance, labelBoot, "a.4194304999.17."+processNumbers())
	}
	own := newNetworks(&daemon{}, "", "mine", slog.New(slog.DiscardHandler)).own
	answers := map[string]string{
		"/containers/json": "[]",
		"/volumes":         `{"Volumes":[` + labelled("Name", "volume", "mine") + "," + labelled("Name", "older", "mine") + "," + labelled("Name", "left", "other") + "]}",
		"/networks":        "[" + labelled("Name", own, "mine") + "," + labelled("Name", "renamed", "other") + "]",
	}
	var mu sync.Mutex
	var removed []string
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet && answers[path] != "" {
			return http.StatusOK, answers[path]
		}
		removed = append(removed, r.Method+" "+path)
		return http.StatusNoContent, ""
	})
	log := slog.New(slog.DiscardHandler)
	b := &Backend{daemon: d, log: log, place: place{Instance: "mine", Boot: newBoot(), Volume: "volume"}, cleaner: newCleaner(d, log), claims: &claims{}}
	r := reaper{b: b, since: map[string]time.Time{}}
	if _, err := r.sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	b.cleaner.wait()
	if got := strings.Join(removed, ", "); got != "DELETE /volumes/older, DELETE /volumes/left" {
		t.Errorf("the removals were %s", got)
	}
}

// TestTheRunnersVolumeIsRemovedOnceTheDaemonLetsGoOfIt: a daemon forgets a container before it releases its volumes.
func TestTheRunnersVolumeIsRemovedOnceTheDaemonLetsGoOfIt(t *testing.T) {
	t.Parallel()
	const name = "python-executor-runner-1-2"
	user := func(state, volume string) string {
		return `[{"Id":"c","State":"` + state + `","Mounts":[{"Type":"volume","Name":"` + volume + `"}]}]`
	}
	for what, c := range map[string]struct {
		users string // the containers that are listed while the volume is in use
		tries int    // the number of the removal that succeeds
		times int    // the removals that are expected
	}{
		"no container has it any more": {"[]", 3, 3},
		"a container that is removed":  {user("removing", name), 3, 3},
		"one that has ended":           {user("exited", name), 2, 2},
		"another's, alike":             {user("running", name+"0"), 2, 2},
		"a container that runs":        {user("running", name), 100, 1},
		"one that is not started":      {user("created", name), 100, 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			times := 0
			d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.Method == http.MethodDelete && path == "/volumes/"+name:
					if times++; times < c.tries {
						return http.StatusConflict, `{"message":"volume is in use"}`
					}
					return http.StatusNoContent, ""
				case path == "/containers/json" && strings.Contains(r.URL.Query().Get("filters"), name):
					return http.StatusOK, c.users
				}
				return http.StatusNotFound, `{"message":"` + path + `"}`
			})
			v := &runnerVolume{daemon: d, place: func() place { return place{Volume: name} }}
			if err := v.remove(t.Context()); err != nil || times != c.times {
				t.Errorf("%v after %d removals, want %d", err, times, c.times)
			}
		})
	}
}

// TestTheEndOfItsTimeEndsTheRemovalOfAVolume holds even if the daemon never releases the volume.
func TestTheEndOfItsTimeEndsTheRemovalOfAVolume(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusConflict, `{"message":"volume is in use"}`
		}
		cancel(errSilent)
		return http.StatusOK, "[]"
	})
	v := &runnerVolume{daemon: d, place: func() place { return place{Volume: "v"} }}
	if err := v.remove(ctx); err == nil {
		t.Error("remove returned no error, although the volume is in use")
	}
}

// TestTheEndOfARequestDoesNotEndTheMakingOfAContainer: the daemon would finish it, and nobody would know the container's id.
func TestTheEndOfARequestDoesNotEndTheMakingOfAContainer(t *testing.T) {
	t.Parallel()
	d := toyDaemon(t, func(*http.Request, string) (int, string) { return http.StatusCreated, `{"Id":"c"}` })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	if id, err := d.create(ctx, containerSpec{}); id != "c" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
}

// TestARemovalEndsWhenTheContainerIsGone: the daemon may be removing it already.
func TestARemovalEndsWhenTheContainerIsGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message string
		waits   bool
		fails   bool
	}{
		"the daemon removes it":       {message: "removal of container c is already in progress", waits: true},
		"the daemon cannot remove it": {message: "container c is in use", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waited atomic.Bool
			d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
				if path == "/containers/c/wait" {
					waited.Store(r.URL.Query().Get("condition") == "removed")
					return http.StatusOK, `{"StatusCode":137}`
				}
				return http.StatusConflict, `{"message":"` + c.message + `"}`
			})
			if err := d.remove(t.Context(), "c"); (err != nil) != c.fails || waited.Load() != c.waits {
				t.Errorf("%v; waited %v", err, waited.Load())
			}
		})
	}
}
