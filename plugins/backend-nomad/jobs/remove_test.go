package jobs

import (
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// A node that has to kill a container that ended while the node's client was away tries it for minutes.
func TestAnAllocationThatHasEndedIsNotKilled(t *testing.T) {
	t.Parallel()
	c := nomadtest.Start(t, nomadtest.Options{Clients: 1})
	b := openBackend(t, c, nil)
	j := aJob(t, executor.Spec{Code: "import time\nprint('up', flush=True)\ntime.sleep(2)\n"})
	up := make(chan struct{})
	var once sync.Once
	said := journal{on: func(e executor.Event) {
		if _, ok := e.Body.(executor.Output); ok {
			once.Do(func() { close(up) })
		}
	}}
	restarted := make(chan error, 1)
	go func() {
		<-up
		c.Clients[0].Kill()
		restarted <- c.Clients[0].Start()
	}()
	if r := ends(t, b, j, &said); r.Status != executor.StatusSucceeded {
		t.Fatalf("%+v", r)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	alloc, _, err := c.API().Allocations().Info(said.allocation(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range alloc.TaskStates[taskProgram].Events {
		if e.Type == api.TaskKilling || e.Type == api.TaskKilled {
			t.Errorf("allocation %s: %s: %s", alloc.ID, e.Type, e.DisplayMessage)
		}
	}
	if alloc.ClientStatus != api.AllocClientStatusComplete {
		t.Errorf("allocation %s is %s", alloc.ID, alloc.ClientStatus)
	}
}
