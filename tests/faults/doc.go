// Package faults knows the faults that the tests must notice, puts them into a copy of the workspace, one at a time, and runs the
// tests that must notice them.
//
// There are two sources of faults. The files NAME.patch of this folder are faults that somebody made by hand (Load). Mutants are
// small changes that a tool finds in the code (List, Sample). The command is tests/cmd/faults; docs/faults.md says how to use it and
// how a patch is written.
//
// A Workspace is a copy, so a run never changes the tree that it was started in. The copy has the files that git tracks and those
// that it would track, with their uncommitted changes.
package faults
