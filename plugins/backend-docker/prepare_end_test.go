package dockerbackend

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The events of the container c, as the daemon sends them.
const (
	oomEvent     = `{"Type":"container","Action":"oom","timeNano":3,"Actor":{"ID":"c"}}`
	killEvent    = `{"Type":"container","Action":"kill","timeNano":1,"Actor":{"ID":"c"}}`
	destroyEvent = `{"Type":"container","Action":"destroy","timeNano":4,"Actor":{"ID":"c"}}`
)

func dieEvent(code int) string {
	return fmt.Sprintf(`{"Type":"container","Action":"die","timeNano":2,"Actor":{"ID":"c","Attributes":{"exitCode":"%d"}}}`, code)
}

// TestTheEndOfAPreparationIsKnownFromLaterEvents: the daemon's answer about a container that has just ended may lack the reason.
func TestTheEndOfAPreparationIsKnownFromLaterEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exit              int
		inspected         bool // what the daemon says at once about memory
		events            string
		outOfMemory, told bool
		code              executor.Code
	}{
		"memory, at once":          {exit: 137, inspected: true, outOfMemory: true},
		"memory, later":            {exit: 137, events: dieEvent(137) + oomEvent, outOfMemory: true},
		"a child's memory, later":  {exit: 5, events: dieEvent(5) + oomEvent, outOfMemory: true},
		"a child's memory, before": {exit: 5, events: oomEvent + dieEvent(5), outOfMemory: true},
		"the daemon":               {exit: 137, events: killEvent + dieEvent(137), told: true},
		"its own kill":             {exit: 137, events: dieEvent(137)},
		"no events":                {exit: 137},
		"a failure":                {exit: 1, events: dieEvent(1)},
		"a success is not asked":   {exit: 0, events: dieEvent(0) + oomEvent},
		"it is gone by now":        {code: executor.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := toyDaemon(t, func(_ *http.Request, path string) (int, string) {
				switch {
				case strings.HasPrefix(path, "/events"):
					if c.exit == 0 {
						t.Error("the events of a success were asked for")
					}
					return http.StatusOK, c.events
				case c.code != "":
					return http.StatusNotFound, `{"message":"no such container"}`
				}
				return http.StatusOK, `{"Id":"c","Config":{},"State":{"Status":"exited","ExitCode":` + strconv.Itoa(c.exit) + `,"OOMKilled":` + strconv.FormatBool(c.inspected) + `}}`
			})
			d.late = time.Hour // the events end before
			i := &images{imagesOptions: imagesOptions{daemon: d}}
			got, err := i.howEnded(t.Context(), "c")
			if executor.CodeOf(err) != c.code || got.OutOfMemory != c.outOfMemory || got.Told != c.told {
				t.Errorf("%+v, %v; want out of memory %t, told %t, code %q", got, err, c.outOfMemory, c.told, c.code)
			}
		})
	}
}

// TestTheWaitForALateKillEnds by the event itself, by the container's removal, or by its bound, although the daemon goes on
// sending events. A success has no wait, and neither has a kill by the daemon.
func TestTheWaitForALateKillEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events      string
		exit        int
		outOfMemory bool
		bound       bool // it ends the wait
	}{
		"a success":           {dieEvent(0) + oomEvent, 0, false, false},
		"a kill long before":  {strings.Replace(oomEvent, "3", "-10000000000", 1) + dieEvent(5), 5, false, true},
		"the daemon's own":    {killEvent + dieEvent(137), 137, false, false},
		"the kill":            {dieEvent(5) + oomEvent, 5, true, false},
		"the removal":         {dieEvent(5) + destroyEvent + oomEvent, 5, false, false},
		"the bound":           {dieEvent(5), 5, false, true},
		"a signal, the bound": {dieEvent(139), 139, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := toyDaemonServing(t, func(w http.ResponseWriter, r *http.Request, _ string) {
				_, _ = w.Write([]byte(c.events))
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
			if !c.bound {
				d.late = time.Hour
			}
			got, err := d.end(t.Context(), "c")
			if err != nil || got.State != "exited" || got.ExitCode != c.exit || got.OutOfMemory != c.outOfMemory {
				t.Errorf("%+v, %v; want exit code %d, out of memory %t", got, err, c.exit, c.outOfMemory)
			}
		})
	}
}

// TestTheEndOfAContainerIsUnknownWithoutAnEvent: a container of which the daemon has no events may run, and one that is removed may have
// had events that the daemon has forgotten.
func TestTheEndOfAContainerIsUnknownWithoutAnEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events, state string
		code          executor.Code
	}{
		"it was removed":                         {events: destroyEvent, code: executor.NotFound},
		"it still runs":                          {state: "running", code: executor.Unavailable},
		"it has ended":                           {state: "exited"},
		"it has ended, and its events break off": {events: dieEvent(137), state: "running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := toyDaemon(t, func(_ *http.Request, path string) (int, string) {
				if strings.HasPrefix(path, "/events") {
					return http.StatusOK, c.events
				}
				return http.StatusOK, `{"Id":"c","Config":{},"State":{"Status":"` + c.state + `"}}`
			})
			if got, err := d.end(t.Context(), "c"); executor.CodeOf(err) != c.code || err == nil && got.State != "exited" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestAPreparationMayWriteWhatItsDiskHas(t *testing.T) {
	t.Parallel()
	for written, want := range map[int64]error{100: nil, 101: errDiskFull} {
		d := toyDaemon(t, func(r *http.Request, _ string) (int, string) {
			if r.URL.Query().Get("size") != "1" {
				t.Errorf("the size was not asked for: %s", r.URL)
			}
			return http.StatusOK, fmt.Sprintf(`{"Id":"c","SizeRw":%d}`, written)
		})
		i := &images{imagesOptions: imagesOptions{daemon: d}, settings: prepareSettings{disk: 100}}
		if err := i.overfull(t.Context(), "c"); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", written, err, want)
		}
	}
}

// TestAPreparedImageHasNoLabelOfItsContainer: an image with one would make each of its containers a leftover of another life.
func TestAPreparedImageHasNoLabelOfItsContainer(t *testing.T) {
	t.Parallel()
	var committed struct{ Labels map[string]string }
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		if path == "/commit" {
			if err := json.NewDecoder(r.Body).Decode(&committed); err != nil {
				t.Error(err)
			}
			return http.StatusCreated, `{"Id":"sha256:image"}`
		}
		return http.StatusOK, `{"Id":"sha256:image","SizeRw":7}`
	})
	i := &images{imagesOptions: imagesOptions{daemon: d}}
	key := preparedKey("a")
	facts, err := i.commit(t.Context(), "c", key, map[string]string{labelPrepared: key})
	if err != nil || facts.ID != "sha256:image" {
		t.Fatal(facts, err)
	}
	want := map[string]string{labelPrepared: key, labelBytes: "7", labelInstance: "", labelBoot: "", labelKind: "", labelCreated: "", labelDeadline: ""}
	if !maps.Equal(committed.Labels, want) {
		t.Errorf("%v, want %v", committed.Labels, want)
	}
}
