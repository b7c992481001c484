// Package backendtest is the law for Backends: one suite that every implementation passes, whatever it is made of.
//
// Each case has the id and the sentence of a rule in docs/contract.md. A case never asks what a Backend is, only what its
// Info promises: the declared Capabilities choose the expected outcome, positive and negative (memory declared → a
// program that takes too much ends out_of_memory; not declared → asking for the limit is refused).
//
// A Backend's own test says how to make it, and the suite runs in three lanes: direct (the Go value), wire (through gRPC
// in this process) and process (in a plugin process, which is also killed with SIGKILL):
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, backendtest.Harness{
//			New:     func(t *testing.T) executor.Backend { … },
//			Process: func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "uv", options) },
//			Options: backendtest.Options{Residue: leftovers, Requirement: …},
//		})
//	}
//
// Check runs the same cases outside of go test, for `python-executor plugin check`.
//
// Programs are written twice, side by side: as Python for real backends and as directives for the fake, so that a case
// reads as the specification of both. The rules EV-… and some BE-… are watched in every run of every case and reported
// under their own name. Nothing here measures speed: tolerances are generous, and waiting is for events.
//
// The suite is itself tested: saboteurs, small broken backends, must each fail exactly the rules that they break
// (saboteur_test.go).
package backendtest
