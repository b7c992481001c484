// Package executor holds the words of python-executor: the types and the interfaces that all its parts speak.
//
// It imports the standard library only, and contains no behaviour beyond small, pure functions on its own types. Every other package
// points at this one; this one points at none.
//
// The words, used unchanged in code, proto, JSON, CLI and docs:
//
//   - Spec: what to run: language, entrypoint or code or command, requirements, limits, network, outputs.
//   - Execution: one run of a Spec: an id "exe_…", a Status, a Result. Its state is a fold over its Events.
//   - Event: something that happened in an Execution, numbered from 1 without gaps.
//   - Sandbox: the place in which a program runs: a work folder, an interpreter, and the isolation and limits that the backend promises.
//     A Sandbox serves one Execution or one Session, and is never used for another one.
//   - Session: a Sandbox that outlives an Execution, with an interpreter that keeps its state. MCP calls it a context.
//   - Workspace: the tree of files that an Execution starts with, as a tar stream.
//   - Source: a byte stream that can be opened: the tar of a Workspace, or the standard input of a program.
//   - Principal: the caller of an operation: its owner and its scopes. It travels in ctx, never in the body of a request.
//   - Artifact: a file of the work folder that the Spec asks to keep.
//   - Service: the interface that frontends call.
//   - Backend: the interface that a sandbox technology implements.
//   - Frontend: a function that serves a Service to clients (HTTP, MCP).
//   - Store, Blobs: they keep Executions with their Event logs, and spooled Workspaces and Artifacts.
//   - Engine: implements Service with a Store, Blobs and Backends.
//   - Host: starts, watches, restarts and stops plugin processes.
//   - Runner: the small agent inside a Sandbox.
//
// Service and Backend are the two seams. Each has several implementations, and their callers cannot tell which one they hold.
//
// One flow: a Frontend calls Service.Submit. The Engine creates an Execution in the Store and calls Backend.Run with a Sink. The Backend
// emits Events into the Sink, and the Engine appends them to the log. Every reader follows the log with Events.
//
// The program's failure is data (a Status in a Result); a Go error means that the server failed. The rules for implementations have ids
// (BE-01, EV-01, ST-01…) in docs/contract.md.
package executor
