// Package httpfrontend is the HTTP API: a function of a Service.
//
// It turns requests into calls of executor.Service and its answers into JSON, Server-Sent Events and byte streams. It
// knows no engine, no store and no backend, and keeps nothing: every answer is read from the Service, output from the
// Execution's log, a piece at a time. huma holds the OpenAPI document and the routes; the bodies are streams, so the
// handlers read and write them themselves.
//
// One flow: POST /api/v1/exec/sync with metadata, then tar: the metadata becomes a Spec, the tar part a Source that is
// read by whoever runs the program, never by a disk; Submit returns when the upload is consumed; the log is followed to
// Finished; the Result is written from the log.
//
// Decisions that the specification leaves open, in one place:
//
//   - An unknown part of a multipart body is 422 and named, like an unknown metadata field; a part given twice too.
//   - A sync call is 422 with the execution_id when the tar or the files that came with it are at fault (broken, hostile,
//     without an entrypoint), or another field that a backend names before anything started. A requirement that cannot be resolved
//     is a Result (200, failed, phase prepare): the request was understood, and its author needs uv's explanation.
//   - A sync call whose Execution a backend refused before it started is 501 (unimplemented), 403 (denied) or 422.
//   - /healthz, /readyz, /docs and /openapi.json never need a token: they tell nothing about anybody's work. /metrics
//     counts everybody's, so it needs the scope admin where there are tokens.
//   - A client may keep us waiting for 60 s in its upload, and for a second more with each KiB that it sends; then it is
//     408, because what it sends may hold a slot.
//   - A client that takes nothing of its answer for 5 min is cut off; event streams resume where they were.
//   - A client that holds an idempotency key and gets an Execution that somebody else's call started does not kill it by
//     going away.
//   - memory_samples and image_digest stand in a Result only where they exist.
package httpfrontend
