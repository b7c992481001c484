// Package requirements holds what backends that install packages share. It reads a requirements text, finds the package
// index settings of this host, and interprets the error output of uv and pip. It starts no process.
//
// Normalise turns a Spec's Requirements into lines that only name packages. HostVariables returns the variables that tell
// where packages come from. The backend then runs uv or pip, on its own or by the Driver. Classify turns their error output into
// a Failure. Commands is the script of pre_commands, and follows its output.
package requirements
