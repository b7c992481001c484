// Package session is an interpreter that stays between Executions, with its work folder and its control groups.
//
// Between the requests open and close a runner has a Session. Its interpreter runs one of the drivers (package drivers). An
// Execution with Start.Session is a cell for that interpreter or, with a Command, a process of its own in the same place. One
// runs at a time. Requests about files are served at any time; variables and path wait for their turn.
//
// # The driver
//
// The runner talks to the driver over a socket that the user's code can reach, too. So it trusts nothing that comes from
// there: lines and the number of Displays are bounded, answers are matched by number, and the time limit is the runner's own.
// An answer that cannot be understood ends the interpreter.
//
// Output is read from the interpreter's own pipes, which stay open. What lies in the pipes when the driver says that a cell
// is done belongs to that cell; the runner waits for no more. What comes between two Executions is kept, the newest 512 KiB
// of each stream, and is the first output of the next one. Started tells how much that is. The counts in a Result include
// what was dropped.
//
// In a container the first interpreter of a Python session may have been started before: Wait starts it with its driver, and Open takes it over.
//
// # Interrupts and limits
//
// Cancel and timeout send SIGINT to the interpreter and to what it has started since the cell began. Background processes live
// on. A cell that has not ended after three quarters of Limits.KillGrace is interrupted once more: Python, for one, drops an
// exception that a finalizer raises. (Node's driver repeats its interrupts itself.) After Limits.KillGrace the runner kills
// what the cell has started: a program that ignores SIGINT does not cost the session its state. If the cell does not end
// within another 2 s, or has started nothing, the interpreter is killed with all it started, and a new one is started
// (SessionStateRestarted). An interpreter that ends by itself is not started anew (SessionStateLost) until the request
// restart. Standard input comes through a FIFO that the driver opens as descriptor 0.
//
// A Command's processes have a control group below the session's, and are killed by it. Without control groups they are the
// runner's children that have come since, which includes what the interpreter's background processes have left meanwhile.
// CPU time and peak memory are those of the interpreter's group since the cell began, as far as the kernel can begin a peak
// anew.
//
// # Files
//
// Files are opened through an os.Root, so no link leads out of the folder. They are written under another name and renamed,
// and belong to the program's uid.
package session
