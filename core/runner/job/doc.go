// Package job is the files of a runner without a stream to a host: what it reads and what it writes.
//
// In some places a host can put files beside a container and read files of it, but has no stream to it. Nomad is one. There
// `runner job --input DIR --output DIR` (package batch) runs one Execution and ends. `runner job-prepare` with the same
// options makes what the Execution needs beside its image. `runner job-feed` runs beside job and brings a standard input that
// is not whole when the job is made.
//
// The input folder has:
//
//   - start.json: a Start, for job. prepare.json: a Prepare, for job-prepare. feed.json: a Feed, for job-feed.
//   - workspace.tar: the Workspace. stdin: the standard input. Either may be missing.
//   - ca.pem and netrc, for job-prepare: authorities to trust and credentials of package indexes. Either may be missing.
//
// The output folder belongs to the runner and has:
//
//   - events: Records, a line each. A Writer appends them and a Reader reads them. job and job-prepare write the same form.
//   - artifacts: the collected files as a tar. Records of type Artifact say where the content of each file is.
//
// # Records
//
// A line is a JSON object with one key, which is the record's type: begin, event, artifact, prepared, result or error. begin
// comes first. result or error comes last; after a preparation that succeeded prepared does. The runner writes a record with
// one write at the end of the file. If the runner is killed, the last line may have no end: that record was not written. A file
// without a last record is that of a runner that was killed, or still runs.
//
// Output is in the file as base64, because a program may write any bytes. The records of small pieces of output are put
// together, so that a program that writes single bytes does not fill the disk.
package job
