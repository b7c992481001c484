// Package requirements is what backends that install packages have in common: the reading of a requirements text, this
// host's settings of the package index, and what the words of uv and pip mean when they fail. It starts no process.
//
// One flow: Normalise turns a Spec's Requirements into lines that name packages and nothing else; HostVariables says where
// packages come from; the backend runs uv or pip; Classify turns what that said into a Failure.
package requirements
