// Package executor holds the words of python-executor: the types and the interfaces that everything else speaks.
//
// It imports the standard library only and contains no behaviour beyond small, pure functions on its own types. Every
// other package points at this one; this one points at nothing.
//
// The words, used unchanged in code, proto, JSON, CLI and docs:
//
//   - Spec: what to run: language, entrypoint or code or command, requirements, limits, network, outputs.
//   - Execution: one run of a Spec: an id "exe_…", a Status, a Result. Its state is a fold over its Events.
//   - Event: what happened, numbered from 1 without gaps per Execution.
//   - Session: a Sandbox that outlives an Execution. MCP calls it a context.
//   - Workspace: the tree of files an Execution starts with, as a tar stream.
//   - Source: a byte stream that can be opened: a Workspace's tar, or a program's standard input.
//   - Principal: who asks: owner, scopes, trusted or not. It travels in ctx, never in a request body.
//   - Artifact: a file of the Workspace that the Spec asked to keep.
//   - Service: the inward door: everything a frontend can ask for.
//   - Backend: the outward door: everything a sandbox technology must do.
//   - Frontend: a way in: a function of a Service (HTTP, MCP).
//   - Store, Blobs: Executions and their Event logs; spooled Workspaces and Artifacts.
//   - Engine: implements Service with a Store and Backends.
//   - Host: starts, watches, restarts and stops plugin processes.
//   - Runner: the small agent inside a Sandbox.
//
// Two seams exist, Service and Backend; each has several implementations and nobody can tell which one they hold.
//
// One flow: a Frontend calls Service.Submit; the Engine creates an Execution in the Store, calls Backend.Run with a Sink;
// the Backend emits Events into the Sink, the Engine appends them to the log; every reader follows the log with Events.
//
// The program's failure is data (a Status in a Result); a Go error means that we failed. The rules that implementations
// must keep have ids (BE-01, EV-01, ST-01…) in docs/contract.md.
package executor
