// Package detect finds the entrypoint, the requirements and the Python version of a program in the program's files. The Engine
// uses it if a Spec asks for it, the CLI on its uploads, and the MCP frontend on folders of the host. testdata/input has examples, which
// the SDKs are tested with, too.
//
// The package only reads. It runs nothing and writes no files.
package detect
