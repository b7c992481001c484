// Package boltstore keeps Executions and their logs on one machine's disk: a bbolt file and a write-ahead log beside it.
//
// One flow: every change is one record of the write-ahead log, written before the call returns and visible to followers
// at once. What must be on disk (see below) then waits for an fsync that it shares with everybody who waits at that
// moment. A second later, or when 1 MiB has gathered, the checkpointer moves what is in memory into bbolt, in one
// transaction for all Executions, and drops the write-ahead log up to there. Readers take what is new from memory and
// what is older from bbolt, a piece at a time, so that a slow follower pins nothing.
//
// What is promised:
//
//   - kill -9 of the process loses nothing that was accepted: every write is in the kernel's hands when its call returns.
//   - A power failure loses nothing of a Durable record's Create, Update and Finished: these return after an fsync. It may
//     lose the last moment of other Events (until the next fsync of anybody, at most about a second), always from the end,
//     so that Seq has no gap.
//   - Neither makes the file unreadable: bbolt syncs its pages before the root that points at them, and a record of the
//     write-ahead log that was cut is known by its checksum and dropped.
//   - A disk that is full makes writes unavailable, and nothing worse.
//
// Memory is bounded: at most 4 MiB of Events wait for the checkpointer (then Append blocks), and as much is being moved;
// heads of Executions that nobody touches are a cache of 4 MiB.
package boltstore
