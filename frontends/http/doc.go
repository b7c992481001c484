// Package httpfrontend serves the HTTP API of an executor.Service.
//
// It turns requests into calls of the Service, and the Service's answers into JSON, Server-Sent Events and byte streams. It knows
// no engine, no store and no backend, and it keeps no state. Output is read from the log of the Execution, a piece at a time.
//
// The bodies and query parameters are the structs of sdk/go (docs/decisions/0010). huma reflects the API description from their
// tags, decode.go and query.go read requests into them, and apijson converts them. Multipart bodies, Server-Sent Events and Results
// with large output are streams, which the handlers read and write by hand.
//
// One flow: POST /api/v1/exec/sync has metadata and then a tar. The metadata becomes a Spec. The tar part becomes a Source that the
// backend reads, and no disk holds it. Submit returns when the upload is consumed. The handler follows the log to Finished and
// writes the Result from the log.
//
// Decisions that the specification leaves open:
//
//   - An unknown or duplicate part of a multipart body is 422 and named, like an unknown or duplicate field.
//   - An unknown query parameter of a path below /api/v1/ is 422 and named. Other paths take any, because monitors and browsers add
//     some to get past a cache.
//   - A sync call is 422 with the execution_id if its tar or files are at fault (broken, hostile, without an entrypoint), or if a
//     backend names another field before anything started. A requirement that cannot be resolved is a Result (200, failed, phase
//     prepare): the request is valid, and its author needs the explanation of uv.
//   - A sync call whose Execution a backend refuses before it starts is 501 (unimplemented), 403 (denied) or 422.
//   - /healthz, /readyz, /docs and /openapi.json never need a token, because they tell nothing about executions. /metrics counts the
//     executions of all owners, so it needs the scope admin if the server has tokens.
//   - A client may be silent for 60 s during its upload, and for one more second with each KiB that it sends. Then it gets 408,
//     because its upload may hold a slot.
//   - A client that reads nothing of its answer for 5 min is disconnected. Event streams resume where they ended.
//   - A client whose idempotency key returns the Execution of another call does not kill that Execution when it disconnects.
//   - memory_samples, files_changed and image_digest are in a Result only if they exist.
package httpfrontend
