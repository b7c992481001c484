// Package detect finds in a program's own files what a request did not say: its entrypoint, its requirements and the
// Python it needs. The Engine uses it where a Spec asks for it, the CLI on what it uploads.
//
// It only reads. It runs nothing, and unpacks nothing to a disk.
package detect
