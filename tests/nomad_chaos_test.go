package tests

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
	"github.com/python-executor/python-executor/tests/internal/chaos"
	"github.com/python-executor/python-executor/tests/internal/nomadsite"
)

// TestEveryExecutionOnNomadHasOneEndWhateverIsKilled is a short run of the Nomad part of make chaos.
func TestEveryExecutionOnNomadHasOneEndWhateverIsKilled(t *testing.T) {
	needtest.Long(t, "TestTheSpecificationOnNomad, and the tests of the nomad backend")
	t.Parallel()
	cluster := nomadtest.Start(t, nomadtest.Options{Clients: 2, RawExec: true})
	site, err := nomadsite.New(cluster, binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
	})
	rounds := chaos.Nomad{Client: 1, Server: 1, Core: 2, Worker: 2, WorkersCore: 1}
	if err := rounds.Run(site, func(part string, r chaos.Report) { t.Log(part+":", r) }); err != nil {
		t.Error(err)
	}
}
