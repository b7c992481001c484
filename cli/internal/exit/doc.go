// Package exit holds the exit statuses of python-executor and how a Result becomes one.
//
// It is the one table; nothing else in cli knows a number. One flow: a command returns an error or a Result; Of or
// OfResult turns it into the status that main gives to the system.
package exit
