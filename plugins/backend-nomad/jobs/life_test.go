package jobs

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

func TestAJobWithoutAPlaceIsUnavailableInNomadsWords(t *testing.T) {
	t.Parallel()
	var err error
	for _, seconds := range []int{1, 60} { // on a busy machine Nomad may need longer to say why
		b := openBackend(t, nomadtest.Shared(t), func(c *Config) {
			c.Constraints, c.QueueTimeoutSeconds = []string{"${node.class} = nowhere"}, seconds
		})
		j := aJob(t, executor.Spec{Code: "print('never')"})
		var said journal
		_, err = b.Run(t.Context(), j, &said)
		if executor.CodeOf(err) != executor.Unavailable || said.started != nil {
			t.Errorf("%v", err)
		}
		if err := b.Remove(t.Context(), j.ID); err != nil {
			t.Error(err)
		}
		if err != nil && strings.Contains(err.Error(), "${node.class} = nowhere") {
			return
		}
	}
	t.Error(err)
}

func TestAnEndedJobIsPurgedAfterAWhile(t *testing.T) {
	t.Parallel()
	c := nomadtest.Shared(t)
	b := openBackend(t, c, func(c *Config) { c.PurgeAfterSeconds = 2 })
	j := aJob(t, executor.Spec{Code: "print('hello')"})
	var said journal
	ends(t, b, j, &said)
	awaittest.Until(t, "the purge", func() bool {
		found, err := b.cluster.info(t.Context(), jobID(j.ID))
		return err == nil && found == nil
	})
	alloc := said.allocation(t)
	awaittest.Until(t, "the removal of the files of allocation "+alloc, func() bool {
		_, err := b.cluster.size(t.Context(), alloc, taskProgram+"/"+outputPath+"/"+job.EventsFile)
		return missing(err)
	})
}

func TestABackendPurgesNoJobOfAnotherOne(t *testing.T) {
	t.Parallel()
	c := nomadtest.Shared(t)
	patient := openBackend(t, c, nil)
	hasty, err := open(plugin.Configure{
		Name: "hasty", Instance: t.Name(), DataDir: t.TempDir(), Options: section(t, c, func(c *Config) { c.PurgeAfterSeconds = 0 }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hasty.Close(); err != nil {
			t.Error(err)
		}
	})
	j := aJob(t, executor.Spec{Code: "print('hello')"})
	var said journal
	ends(t, patient, j, &said)
	// Backend hasty sweeps later than the job ended, and purges its own job in the same sweep or after it.
	own := aJob(t, executor.Spec{Code: "print('hello')"})
	ends(t, hasty, own, &said)
	awaittest.Until(t, "the purge of its own job", func() bool {
		found, err := hasty.cluster.info(t.Context(), jobID(own.ID))
		return err == nil && found == nil
	})
	if found, err := patient.cluster.info(t.Context(), jobID(j.ID)); err != nil || found == nil {
		t.Errorf("the job of the other backend: %v, %v", found, err)
	}
}

func TestAJobOutlivesAKilledServerAndAKilledClient(t *testing.T) {
	c := nomadtest.Start(t, nomadtest.Options{Clients: 1})
	b := openBackend(t, c, nil)
	j := aJob(t, executor.Spec{Code: "import time\nfor n in range(60):\n    print(n, flush=True)\n    time.sleep(0.25)\n"})
	up := make(chan struct{})
	var once sync.Once
	said := journal{on: func(e executor.Event) {
		if _, ok := e.Body.(executor.Output); ok {
			once.Do(func() { close(up) })
		}
	}}
	done := make(chan error, 1)
	go func() {
		r, err := b.Run(t.Context(), j, &said)
		if err == nil && r.Status != executor.StatusSucceeded {
			err = fmt.Errorf("%+v", r)
		}
		done <- err
	}()
	select {
	case <-up:
	case err := <-done:
		t.Fatal(err)
	}
	for _, agent := range []*nomadtest.Agent{c.Server, c.Clients[0]} {
		agent.Kill()
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	want := ""
	for n := range 60 {
		want += fmt.Sprintln(n)
	}
	t.Logf("allocation %s", said.allocation(t))
	if said.stdout.String() != want {
		t.Errorf("stdout %q", said.stdout.String())
	}
	if err := b.Remove(t.Context(), j.ID); err != nil {
		t.Error(err)
	}
}

// killed runs a job, kills the plugin at its first output, and follows it to its end with another plugin.
func killed(t *testing.T, j executor.Job) (stdout string, artifacts map[string]string) {
	t.Helper()
	c := nomadtest.Shared(t)
	configure := plugin.Configure{Name: "nomad", Instance: t.Name(), DataDir: t.TempDir(), Options: section(t, c, nil)}
	first, err := plugintest.Start(t, configure)
	if err != nil {
		t.Fatal(err)
	}
	before := journal{on: func(e executor.Event) {
		if _, ok := e.Body.(executor.Output); ok {
			first.Kill()
		}
	}}
	if _, err := first.Backend.Run(t.Context(), j, &before); executor.CodeOf(err) != executor.Unavailable {
		t.Fatalf("the plugin was killed: %v", err)
	}
	next, err := plugintest.Start(t, configure)
	if err != nil {
		t.Fatal(err)
	}
	var after journal
	r, err := next.Backend.Attach(t.Context(), j, executor.Resume{Handle: before.started.Handle, Stdout: int64(before.stdout.Len())}, &after)
	t.Logf("allocation %s, %q then %q", before.allocation(t), before.stdout.String(), after.stdout.String())
	if err != nil || r.Status != executor.StatusSucceeded {
		t.Errorf("%v, %+v", err, r)
	}
	if err := next.Backend.Remove(t.Context(), j.ID); err != nil {
		t.Error(err)
	}
	return before.stdout.String() + after.stdout.String(), after.artifacts
}

func TestAJobGoesOnWhenItsPluginIsKilled(t *testing.T) {
	t.Parallel()
	j := aJob(t, executor.Spec{Code: "import time\nprint('one', flush=True)\ntime.sleep(4)\nopen('a.txt', 'w').write('kept')\nprint('two')\n", Outputs: []string{"*.txt"}})
	if stdout, artifacts := killed(t, j); stdout != "one\ntwo\n" || artifacts["a.txt"] != "kept" {
		t.Errorf("%q, artifacts %q", stdout, artifacts)
	}
}

func TestAStandardInputEndsWithItsPlugin(t *testing.T) {
	t.Parallel()
	in, writer := io.Pipe()
	t.Cleanup(func() { _ = in.Close() }) // no error
	j := aJob(t, executor.Spec{Code: "import sys\nfor line in sys.stdin: print(line, end='', flush=True)\nprint('end')\n"})
	j.Stdin = &executor.Source{Open: func() (io.ReadCloser, error) { return in, nil }}
	go func() { _, _ = io.WriteString(writer, "one\n") }() // the rest never comes
	if stdout, _ := killed(t, j); stdout != "one\nend\n" {
		t.Errorf("%q", stdout)
	}
}
