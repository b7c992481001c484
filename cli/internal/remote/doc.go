// Package remote is executor.Service over sdk/go: with it a server looks like the engine in this process.
//
// It adds nothing to what the SDK does (retries, resuming of event streams) and keeps no state. What the HTTP API does not
// say stays zero: an Execution's Owner, Spec and LastSeq, and the Time of an Event.
//
// One flow: Submit turns a Spec into the API's metadata and streams the Workspace; Events yields what the server's log
// holds, in the words of core/executor. Errors come back as *executor.Error.
package remote
