// Package stop lets a command end in two steps. The first request ends its context, so that the command stops in order. The
// second request ends the time for that.
//
// The package handles no signals: cmd converts them to requests.
//
// One flow: cmd calls New, a signal calls First, a second signal calls Again. The last steps of a command run under a context of
// Within, which outlives the first request and ends with the second.
package stop
