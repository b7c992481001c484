// Package stop lets a command end in two steps: the first request ends its context, so that it stops in order; the second
// one takes away the time that stopping in order would need.
//
// It knows no signals: cmd turns them into requests.
//
// One flow: cmd calls New, a signal calls First, a second one calls Again. What a command does on its way out runs under a
// context of Within, which outlives the first request and ends with the second.
package stop
