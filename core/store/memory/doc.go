// Package memorystore keeps Executions and their logs in this process's memory.
//
// It is the Store of an embedded engine (`run` without a server) and of tests. It is not bounded by itself: retention
// is the Engine's. With Options.LogWindowBytes each log is a window that its reader drains.
//
// One flow: Create puts a record into the map; Append numbers Events, folds them into the head and closes the record's
// wake channel; each follower, asleep on that channel, copies what is new and yields it outside of every lock.
package memorystore
