package dockerbackend

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// TestTheEndOfAPreparationIsKnownFromLaterEvents: the daemon's answer about a container that was just killed may lack the reason.
func TestTheEndOfAPreparationIsKnownFromLaterEvents(t *testing.T) {
	t.Parallel()
	const die, oom, kill = `{"Type":"container","Action":"die","timeNano":2,"Actor":{"ID":"c","Attributes":{"exitCode":"137"}}}`,
		`{"Type":"container","Action":"oom","timeNano":3,"Actor":{"ID":"c"}}`, `{"Type":"container","Action":"kill","timeNano":1,"Actor":{"ID":"c"}}`
	for name, c := range map[string]struct {
		exit              int
		inspected         bool // what the daemon says at once about memory
		events            string
		outOfMemory, told bool
		code              executor.Code
	}{
		"memory, at once":   {exit: 137, inspected: true, outOfMemory: true},
		"memory, later":     {exit: 137, events: die + oom, outOfMemory: true},
		"the daemon":        {exit: 137, events: kill + die, told: true},
		"its own kill":      {exit: 137, events: die},
		"no events":         {exit: 137},
		"another end":       {exit: 1, events: die + oom},
		"it is gone by now": {code: executor.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := toyDaemon(t, func(_ *http.Request, path string) (int, string) {
				switch {
				case strings.HasPrefix(path, "/events"):
					return http.StatusOK, c.events
				case c.code != "":
					return http.StatusNotFound, `{"message":"no such container"}`
				}
				return http.StatusOK, `{"Id":"c","Config":{},"State":{"Status":"exited","ExitCode":` + strconv.Itoa(c.exit) + `,"OOMKilled":` + strconv.FormatBool(c.inspected) + `}}`
			})
			i := &images{imagesOptions: imagesOptions{daemon: d}}
			got, err := i.howEnded(t.Context(), "c")
			if executor.CodeOf(err) != c.code || got.OutOfMemory != c.outOfMemory || got.Told != c.told {
				t.Errorf("%+v, %v; want out of memory %t, told %t, code %q", got, err, c.outOfMemory, c.told, c.code)
			}
		})
	}
}
