// Package sqlitestore keeps Executions, their logs and Sessions on the disk of one machine: in an SQLite database, and in a
// file beside it for each Execution that prints much.
//
// One flow: Append numbers Events and folds them into the head of their Execution, writes head and Events in one transaction,
// and wakes the followers. Executions that have not ended are in memory with their latest Events, so followers rarely read
// the database. Output of more than a few KiB is written once, to the Execution's file; the database says where it lies.
//
// The Store promises:
//
//   - A kill -9 of the process loses nothing that was accepted: a commit writes to the kernel before the call returns. Only
//     the latest Events of a Relaxed Record, and the Record itself, may be lost before its Finished.
//   - A power failure loses nothing of a Durable Record's Create, Update and Finished: these calls return after an fsync,
//     which all callers that wait share. It may lose about the last second of other Events, always from the end of a log.
//   - Neither makes the database unreadable: SQLite syncs its log before it copies pages from there into the database.
//   - A full disk makes writes unavailable. Reading goes on, and so does writing once there is room.
//
// Memory is bounded: Executions that have not ended (the Engine bounds them), the latest Events of each, and the heads of
// the last few that were used.
package sqlitestore
