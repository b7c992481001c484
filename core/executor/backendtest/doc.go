// Package backendtest tests implementations of executor.Backend against their contract, with one suite for all of them.
//
// Each case has the id and the sentence of a rule in docs/contract.md. A case does not depend on the kind of Backend, only on
// the Capabilities that its Info declares. If a memory limit is declared, a program that exceeds the limit must end
// out_of_memory. If a memory limit is not declared, a Spec that asks for one must be refused.
//
// The test of a Backend provides functions that make the Backend. The suite runs in three lanes: direct (the Go value), wire
// (through gRPC in this process) and process (in a plugin process, which the suite also kills with SIGKILL):
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, backendtest.Harness{
//			New:     func(t *testing.T) executor.Backend { … },
//			Process: func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "uv", options) },
//			Options: backendtest.Options{Leftovers: leftovers, Requirement: …},
//		})
//	}
//
// Check runs the same cases outside of go test, for `python-executor plugin check`.
//
// Each program is written twice, side by side: in Python for real backends and in directives for the fake. The rules EV-… and
// some of the rules BE-… are checked in every run of every case and reported under their own name. The suite does not measure
// speed. Its tolerances are generous, and it waits for events.
//
// Saboteurs test the suite itself. They are small broken backends, each of which must fail exactly the rules that it breaks
// (saboteur_test.go).
package backendtest
