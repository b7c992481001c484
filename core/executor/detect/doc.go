// Package detect finds the entrypoint, the requirements and the Python version of a program in the program's files. The Engine
// uses it if a Spec asks for it, and the CLI uses it on its uploads.
//
// The package only reads. It runs nothing and writes no files.
package detect
