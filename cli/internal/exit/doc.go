// Package exit holds the exit statuses of python-executor and how a Result becomes one.
//
// No other package of cli has these numbers. One flow: a command returns an error or a Result. Of or OfResult converts it to the
// exit status of the process.
package exit
