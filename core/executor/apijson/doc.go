// Package apijson is the JSON in which Executions and Sessions leave us, in one place: what the HTTP API answers, what its
// events carry, and what the CLI prints with --json. It makes values of the words of core/executor and nothing else; it
// reads and writes no stream, knows no engine and no protocol.
//
// One flow: an Execution becomes a Head and a Tail; whoever holds the whole output puts an Output between them
// (ResultOf), whoever streams it writes that part by itself (frontends/http) with the same names.
//
// The rules of this JSON: every member is there, what is unknown is null, bytes are text where they are UTF-8 and base64
// where they are not, an internal failure says nothing of its inside. testdata/wire holds it to them.
package apijson
